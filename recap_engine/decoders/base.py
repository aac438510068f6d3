"""What a method adds to the shared loop: a tree to draft, and something to remember."""

from abc import ABC, abstractmethod

from recap_engine.memory import TokenMemory
from recap_engine.target import Prefill, Reading, Reads
from recap_engine.tree import CandidateTree, Context


class Decoder(ABC):
    """One method at work on one request."""

    name: str
    reads: Reads  # what it needs of every pass's logits
    most_nodes: int  # of any tree it drafts
    token_memory: TokenMemory | None = None  # persists across requests
    request: int = 0  # number of the request at hand in that memory, from 1

    @abstractmethod
    def draft(self, context: Context, max_depth: int) -> CandidateTree:
        """Guess what follows `context`, whose last token is the root, at most `max_depth` tokens ahead."""

    def seed(self, prefill: Prefill, reading: Reading) -> None:  # noqa: B027 - AR has nothing to remember
        """Remember the prompt's own predictions; called once, and only if `reads.top_k`."""

    def update(self, tree: CandidateTree, reading: Reading, accepted: list[int], step: int) -> None:  # noqa: B027
        """Remember what the target predicted at every verified position."""

    def end(self) -> None:  # noqa: B027
        """Drop what belongs to this request; called however the lane ends."""

    def sizes(self) -> dict[str, int]:
        """How many keys of each order hold a record."""
        return {"order1": 0, "order2": 0, "order3": 0}
