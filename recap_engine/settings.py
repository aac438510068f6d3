"""What a person may choose for a run."""

from dataclasses import dataclass
from typing import Literal

from recap_engine.errors import RecapError
from recap_engine.weighting import WEIGHTINGS

MOST_NODES = 256  # a budget beyond this never pays and only costs memory
MOST_TOKENS = 8192


@dataclass(frozen=True)
class Settings:
    """Settings of a lane. Raises RecapError for a value out of range."""

    max_new_tokens: int = 200
    budget: int | Literal["auto"] = "auto"  # most nodes in a tree; auto: RECAP fits the hardware, TR takes its 80
    max_depth: int = 12  # RECAP; TR's static tree has six levels
    floor: float = 0.005  # RECAP: no candidate of a smaller path probability
    top_k: int = 5  # tokens a RECAP record holds: more cost time and win nothing; TR's rows always hold 8
    weighting: str = "entropy-confidence"  # see `weighting.WEIGHTINGS`
    record: bool = True  # keep trees, decisions and exact phase times; off: only what was emitted, and when

    def __post_init__(self) -> None:
        _check(self.max_new_tokens, "max_new_tokens", 1, MOST_TOKENS)
        _check(self.max_depth, "max_depth", 0, 64)
        _check(self.top_k, "top_k", 2, 64)
        if self.budget != "auto":
            _check(self.budget, "budget", 0, MOST_NODES)
        if type(self.floor) not in (int, float) or not 0.0 <= self.floor <= 1.0:
            raise RecapError("The setting floor must be a probability, from 0 to 1.")
        if type(self.weighting) is not str or self.weighting not in WEIGHTINGS:
            raise RecapError(f"The setting weighting must be one of {', '.join(WEIGHTINGS)}.")


def _check(value: object, name: str, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise RecapError(f"The setting {name} must be a whole number from {low} to {high}.")
