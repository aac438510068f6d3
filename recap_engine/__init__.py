"""RECAP and its baselines, instrumented: lossless speculative decoding from a model's own earlier predictions.

    engine = Engine.load()                                   # the embedded model
    request = engine.prepare("What is in the picture?", "picture.png")
    for progress in engine.run(request, "recap", Settings(max_new_tokens=60)):
        print(progress.text)

Start reading at `decode.py` (the loop), then `decoders/recap.py`, `tree.py` and `weighting.py` (the method).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recap_engine.decode import Progress
    from recap_engine.engine import LANES, Engine
    from recap_engine.errors import RecapError
    from recap_engine.images import open_image
    from recap_engine.request import Request
    from recap_engine.settings import Settings
    from recap_engine.trace import RequestTrace

__version__ = "1.0"
_HOMES = {
    "Progress": "decode",
    "LANES": "engine",
    "Engine": "engine",
    "RecapError": "errors",
    "open_image": "images",
    "Request": "request",
    "Settings": "settings",
    "RequestTrace": "trace",
}
__all__ = ["LANES", "Engine", "Progress", "RecapError", "Request", "RequestTrace", "Settings", "open_image"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that reading a trace or drawing a scene needs no torch."""
    if name in _HOMES:
        return getattr(import_module(f"recap_engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
