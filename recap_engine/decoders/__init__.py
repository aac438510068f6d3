"""The methods. They share one loop (`recap_engine.decode`) and differ in what they draft and remember."""

from recap_engine.decoders.autoregressive import Autoregressive
from recap_engine.decoders.base import Decoder
from recap_engine.decoders.recap import Recap
from recap_engine.decoders.recap_plus import RecapPlus
from recap_engine.decoders.token_recycling import TokenRecycling

__all__ = ["Autoregressive", "Decoder", "Recap", "RecapPlus", "TokenRecycling"]
