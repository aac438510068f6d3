"""Plain autoregressive decoding: the loop with an empty tree. Every step adds the target's argmax, one token."""

from recap_engine.decoders.base import Decoder
from recap_engine.target import Reads
from recap_engine.tree import CandidateTree, Context


class Autoregressive(Decoder):
    """The baseline every speedup is measured against."""

    name = "ar"
    reads = Reads()
    most_nodes = 0

    def draft(self, context: Context, max_depth: int) -> CandidateTree:
        return CandidateTree(context)
