"""What the target predicted, kept under the tokens that led to it.

A record is the target's top-k at one verified position. RECAP stores each under three keys: the last token, the last
two, the last three. The one-token key goes into a `TokenMemory`, which persists across requests; the longer keys go
into a `RequestMemory`, which lives for one request and so never mixes predictions made under different images. Token
Recycling's |V| x k adjacency matrix is a `TokenMemory` too: a row appears when it is first written.

Source: RECAP, arXiv 2611.05894, abstract (keys and lifetimes); Token Recycling, arXiv 2408.08696 (the matrix).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recap_engine.trace import Written
from recap_engine.tree import CandidateTree, Context
from recap_engine.weighting import chances

if TYPE_CHECKING:
    from recap_engine.target import Reading

FADE, PRIOR = 0.97, 2.0  # of `Promises`: what a step leaves of the counts before it, and nodes taken as kept at first
PROMPT_STEP = -1  # the step number of records that come from the prompt


@dataclass(slots=True, eq=False)
class Record:
    """The target's top-k at one position, best first. Equal only to itself: two positions may read alike."""

    tokens: list[int]  # [k]
    probabilities: list[float]  # [k], under the full distribution; empty if the reader did not ask for them
    entropy: float  # of the full distribution over ln|V|: 0 is certain, 1 is uniform
    written: Written
    _chances: list[float] | None = None

    @property
    def chances(self) -> list[float]:
        """[k], sum 1: how likely each token is the argmax when the key comes up again."""
        if self._chances is None:
            self._chances = chances(self.probabilities)
        return self._chances


Recalled = tuple[Record | None, Record | None, Record | None]  # what orders 1, 2 and 3 hold for one context


@dataclass
class Promises:
    """How far the path probabilities of recent trees came true.

    A record was made in another context, so a candidate is accepted less often than its probability says. The ratio is
    a running one; while nothing is drafted it drifts back to 1, so that drafting is tried again.
    """

    promised: float = 0.0  # nodes expected to be accepted, by their path probabilities
    kept: float = 0.0  # nodes accepted

    def add(self, promised: float, kept: float) -> None:
        """Count one step; the last thirty or so weigh most."""
        self.promised = FADE * self.promised + promised
        self.kept = FADE * self.kept + kept

    @property
    def ratio(self) -> float:
        return (self.kept + PRIOR) / (self.promised + PRIOR)


@dataclass
class TokenMemory:
    """Order 1: the latest record after each token. Persists across requests."""

    rows: dict[int, Record] = field(default_factory=dict)
    requests: int = 0  # requests it has served, which number its records
    pictures: dict[int, str | None] = field(default_factory=dict)  # the SHA-256 of each request's picture
    promises: Promises = field(default_factory=Promises)

    def begin(self, picture: str | None) -> int:
        """Serve another request, with the SHA-256 of its picture; returns its number, from 1."""
        self.requests += 1
        self.pictures[self.requests] = picture
        return self.requests

    def clear(self) -> None:
        self.rows.clear()
        self.requests = 0
        self.pictures.clear()
        self.promises = Promises()


@dataclass
class RequestMemory:
    """Orders 2 and 3: the latest record after each two and each three tokens of the current request."""

    pairs: dict[tuple[int, int], Record] = field(default_factory=dict)
    triples: dict[Context, Record] = field(default_factory=dict)


def verified_records(
    tree: CandidateTree, reading: "Reading", accepted: list[int], request: int, step: int
) -> Iterator[tuple[Context, Record]]:
    """Every verified position's context and record: what was not accepted first, then the root and the accepted path.

    The order is the rule "accepted ones are written last": a later write replaces an earlier one under the same key.
    """
    kept = set(accepted)
    others = [node for node in range(len(tree)) if node not in kept]
    for nodes, was_accepted in ((others, False), ([-1, *accepted], True)):
        written = (request, step, was_accepted)
        for node in nodes:
            yield tree.context_of(node), reading.record(node + 1, written)


def prompt_records(prompt: list[int], positions: list[int], reading: "Reading", request: int) -> Iterator:
    """The same for the prompt: `reading` holds one row for each of the text `positions` of `prompt`."""
    written = (request, PROMPT_STEP, True)
    padded = [NO_TOKEN, NO_TOKEN, *prompt]
    for row, position in enumerate(positions):
        yield tuple(padded[position : position + 3]), reading.record(row, written)


NO_TOKEN = -1  # stands before the beginning, so that a prompt of one token has three-token keys too
