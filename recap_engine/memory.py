"""What the target predicted, kept under the tokens that led to it.

A record is the target's top-k at one verified position. RECAP stores each under three keys: the last token, the last
two, the last three. The one-token key goes into a `TokenMemory`, which persists across requests; the longer keys go
into a `RequestMemory`, which lives for one request and so never mixes predictions made under different images. Token
Recycling's |V| x k adjacency matrix is a `TokenMemory` too: a row appears when it is first written.

A record says which request wrote it. So what a request changed is found afterwards, at no cost to its steps, and can
be merged into another copy of the memory: a request may run in a process of its own.

Source: RECAP, arXiv 2611.05894, abstract (keys and lifetimes); Token Recycling, arXiv 2408.08696 (the matrix).
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from recap_engine.trace import Written
from recap_engine.tree import CandidateTree, Context
from recap_engine.weighting import chances

if TYPE_CHECKING:
    from recap_engine.target import Reading

FADE, PRIOR = 0.97, 2.0  # of `Promises`: what a step leaves of the counts before it, and nodes taken as kept at first
PROMPT_STEP = -1  # the step number of records that come from the prompt
MOST_CONTEXTS = 50_000  # two- and three-token keys that outlive a request, of each length; the oldest go first
MOST_PICTURES = 4096  # requests whose pictures are remembered before those without records are forgotten
SAMPLE = 200  # records whose size is looked at


@dataclass(slots=True, eq=False)
class Record:
    """The target's top-k at one position, best first. Equal only to itself: two positions may read alike."""

    tokens: list[int]  # [k]
    probabilities: list[float]  # [k], under the full distribution; empty if the reader did not ask for them
    entropy: float  # of the full distribution over ln|V|: 0 is certain, 1 is uniform
    written: Written
    _chances: list[float] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """What can be computed again stays behind when a record travels to another process."""
        return Record, (self.tokens, self.probabilities, self.entropy, self.written)

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
    steps: int = 0  # steps counted

    def add(self, promised: float, kept: float) -> None:
        """Count one step; the last thirty or so weigh most."""
        self.promised = FADE * self.promised + promised
        self.kept = FADE * self.kept + kept
        self.steps += 1

    def merge(self, before: "Promises", after: "Promises") -> None:
        """Count the steps between two states of a copy as if they came after one's own."""
        steps = after.steps - before.steps
        fade = FADE**steps
        if self == before:  # to the last digit
            self.promised, self.kept = after.promised, after.kept
        else:
            self.promised = fade * self.promised + max(0.0, after.promised - fade * before.promised)
            self.kept = fade * self.kept + max(0.0, after.kept - fade * before.kept)
        self.steps += steps

    @property
    def ratio(self) -> float:
        return (self.kept + PRIOR) / (self.promised + PRIOR)


Table = dict[Any, Record]  # by token for order 1, else by the two or three last tokens


@dataclass(frozen=True)
class Mark:
    """A moment in a memory's life, from which changes are counted."""

    requests: int
    promises: Promises


@dataclass(frozen=True)
class Changes:
    """What the requests after a mark left in a memory. It pickles."""

    mark: Mark
    requests: int  # the last one's number
    tables: dict[int, Table]  # by order, only the records that they wrote
    pictures: dict[int, str | None]
    promises: Promises  # after them


@dataclass
class TokenMemory:
    """What persists across requests: a record after each token, and after longer keys if a method keeps them.

    Order 1 is bounded by the vocabulary, the longer orders by MOST_CONTEXTS each.
    """

    rows: dict[int, Record] = field(default_factory=dict)
    pairs: dict[tuple[int, int], Record] = field(default_factory=dict)
    triples: dict[Context, Record] = field(default_factory=dict)
    requests: int = 0  # requests it has served, which number its records
    pictures: dict[int, str | None] = field(default_factory=dict)  # the SHA-256 of each request's picture
    promises: Promises = field(default_factory=Promises)

    @property
    def tables(self) -> dict[int, Table]:
        """The records by the length of their keys."""
        return {1: self.rows, 2: self.pairs, 3: self.triples}

    @property
    def records(self) -> Iterator[Record]:
        """Every record, as often as there are keys to it."""
        return (record for table in self.tables.values() for record in table.values())

    def begin(self, picture: str | None) -> int:
        """Serve another request, with the SHA-256 of its picture; returns its number, from 1."""
        self.trim()
        self.requests += 1
        self.pictures[self.requests] = picture
        return self.requests

    def clear(self) -> None:
        for table in self.tables.values():
            table.clear()
        self.requests = 0
        self.pictures.clear()
        self.promises = Promises()

    def copy(self) -> "TokenMemory":
        """A memory of its own that holds the same records."""
        rows, pairs, triples = dict(self.rows), dict(self.pairs), dict(self.triples)
        return TokenMemory(rows, pairs, triples, self.requests, dict(self.pictures), replace(self.promises))

    def trim(self) -> None:
        """Keep to the bounds: forget the oldest long keys, and the pictures of requests without records.

        Between requests only, so a request may overstep the bounds by what it writes. An eighth more than is needed
        goes, so that it is seldom done.
        """
        for table in (self.tables[2], self.tables[3]):
            if len(table) > MOST_CONTEXTS:
                oldest = sorted(table, key=lambda key: table[key].written)
                for key in oldest[: len(table) - MOST_CONTEXTS * 7 // 8]:
                    del table[key]
        if len(self.pictures) > MOST_PICTURES:
            named = {record.written[0] for record in self.records}
            for request in self.pictures.keys() - named:
                del self.pictures[request]

    def mark(self) -> Mark:
        return Mark(self.requests, replace(self.promises))

    def changes_since(self, mark: Mark) -> Changes:
        """What was written since `mark`. Costs one look at every record, and nothing while a request runs."""
        written = {
            order: {key: record for key, record in table.items() if record.written[0] > mark.requests}
            for order, table in self.tables.items()
        }
        pictures = {request: picture for request, picture in self.pictures.items() if request > mark.requests}
        return Changes(mark, self.requests, written, pictures, replace(self.promises))

    def merge(self, changes: Changes, blend: Callable[[Record, Record], Record] | None = None) -> None:
        """Take over what requests changed in a copy of this memory, as if they had come after all that it served.

        Meanwhile other requests may have been merged: the newcomers are numbered on, and under a key that both wrote,
        the latest wins, as ever. With `blend` the two are blended instead: each holds what was there at the mark, but
        nothing of the other.
        """
        shift = self.requests - changes.mark.requests
        known = changes.mark.requests if shift >= 0 else 0  # last request whose records the copy had, unless emptied
        moved: dict[Record, Record] = {}  # by identity, as one record may stand under several keys
        once = cache(blend) if blend else None
        for order, table in changes.tables.items():
            for key, record in table.items():
                if record not in moved:
                    request, step, accepted = record.written
                    moved[record] = replace(record, written=(request + shift, step, accepted)) if shift else record
                newcomer, held = moved[record], self.tables[order].get(key)
                if once and held is not None and held.written[0] > known:
                    newcomer = once(held, newcomer)
                self.tables[order][key] = newcomer
        self.pictures.update({request + shift: picture for request, picture in changes.pictures.items()})
        self.promises.merge(changes.mark.promises, changes.promises)
        self.requests = changes.requests + shift
        self.trim()

    def size_in_bytes(self) -> int:
        """About what its records take of this process's memory, by the size of some of them."""
        sample = list(islice(self.records, SAMPLE))
        distinct = len(set(map(id, self.records)))
        return round(distinct * sum(map(_bytes, sample)) / len(sample)) if sample else 0


def _bytes(record: Record) -> int:
    """What one record takes, numbers included."""
    parts: list[Iterable[Any]] = [record.tokens, record.probabilities, record.written]
    numbers = sum(sys.getsizeof(number) for part in parts for number in part)
    return sys.getsizeof(record) + sum(map(sys.getsizeof, parts)) + numbers


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
    kept, contexts = set(accepted), tree.contexts
    written = (request, step, False)
    for node, context in enumerate(contexts):
        if node not in kept:
            yield context, reading.record(node + 1, written)
    written = (request, step, True)
    yield tree.context, reading.record(0, written)
    for node in accepted:
        yield contexts[node], reading.record(node + 1, written)


def prompt_records(prompt: list[int], positions: list[int], reading: "Reading", request: int) -> Iterator:
    """The same for the prompt: `reading` holds one row for each of the last of the text `positions` of `prompt`."""
    written = (request, PROMPT_STEP, True)
    rows = len(reading.tokens)
    for row, position in enumerate(positions[-rows:] if rows else []):
        yield _context_at(prompt, position), reading.record(row, written)


def prompt_words(prompt: list[int], positions: list[int], request: int) -> Iterator[tuple[Context, Record]]:
    """The prompt's own next word at each of its text `positions` that text follows, as if it had been predicted."""
    written = (request, PROMPT_STEP, True)
    for position, following in pairwise(positions):
        if following == position + 1:
            yield _context_at(prompt, position), Record([prompt[following]], [1.0], 0.0, written)


def _context_at(prompt: list[int], position: int) -> Context:
    one, two, three = [NO_TOKEN, NO_TOKEN, *prompt[max(0, position - 2) : position + 1]][-3:]
    return one, two, three


NO_TOKEN = -1  # stands before the beginning, so that a prompt of one token has three-token keys too
