"""What was recorded: dataclasses <-> JSON <-> pandas.

A `RequestTrace` is one request (a picture and a question) answered by several lanes; a `LaneTrace` is one decoder's run
of it; a `StepTrace` is one draft -> verify -> accept -> update. The dataclasses below are the schema: a file is their
fields by name, as plain JSON (`.json`) or the same gzipped (`.json.gz`). It holds no code.

    RequestTrace          model, question, settings, machine, the text of every token, image sensitivity
      lanes: LaneTrace    by name, one of SCOPES: answer, times
        records: Records  what the target said at every row of the lane, and what was recalled there: each record once
        steps: StepTrace  the tree as columns, one entry per node; the pass as columns, one entry per row (root + nodes)

How a candidate came to be drafted: node i hangs under `parents[i]`, whose row is r = parents[i] + 1. The keys of row r
(`RequestTrace.key`) found the records `recalled[r]`, the fusion gave them `weights[r]`, and `shares[i]` is, per order,
weight times what the record gives to the node's token (`weighting.chances` of its probabilities). The shares sum to
`fused[i]`. What the target itself said there is record `rows[r]`.

Limits, all checked by `trace_reader` before a trace is trusted: MAX_BYTES of JSON and MAX_LISTS lists and objects in
it, MAX_STEPS steps a lane, MAX_NODES nodes a step, MAX_TOP_K tokens a record, MAX_NUMBER for ids and
counts, MAX_TEXT characters a text. Numbers are finite, probabilities from 0 to 1, times not negative. A token's text is
kept as it is, markup and all: whoever shows it must escape it.

Schema 2 (this one) brought records, rows, weights, history and sensitivity; files of schema 1 are no longer read.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap_engine.atomic import replace_file
from recap_engine.errors import RecapError

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 2
MAX_BYTES = 64 * 2**20  # of JSON text, after decompression
MAX_LISTS = 4 * 2**20  # lists and objects in it, which take more memory than their two characters
MAX_STEPS = 2**14
MAX_NODES = 2**12
MAX_TOP_K = 64
MAX_NUMBER = 2**31 - 1
MAX_TEXT = 2**20
DECISIONS = ("accepted", "rejected", "unreached")
STOPS = ("eos", "length", "cancelled", "error")
PERSISTENT, LOCAL = "persistent", "local"  # across requests, or for this one alone
SCOPES: dict[str, dict[int, str]] = {  # per lane, of the memory behind each order that it looks up
    "ar": {},
    "tr": {1: PERSISTENT},
    "recap": {1: PERSISTENT, 2: LOCAL, 3: LOCAL},
    "recap+": {1: PERSISTENT, 2: PERSISTENT, 3: PERSISTENT},
}
BLENDING = ("recap", "recap+")  # lanes in whose persistent memories a record joins the one that its key held
MEMORIES = ("order1", "order2", "order3")
PHASES = ("draft", "verify", "accept", "update")
ROOT = -1  # the parent of the nodes of depth 1

Written = tuple[int, int, bool]  # request number, step (-1: the prompt's own prefill), was the position accepted
Indices = tuple[int | None, int | None, int | None]  # of records of the lane, by orders 1, 2 and 3
Shares = tuple[float, float, float]  # of orders 1, 2 and 3
Setting = str | int | float | bool | None


class TraceError(RecapError, ValueError):
    """A trace that cannot be read; the message is one clear sentence."""


@dataclass
class Records:
    """What the target said at the positions that a lane verified or recalled: columns, one entry per record."""

    tokens: list[list[int]] = field(default_factory=list)  # [k] each, best first
    probabilities: list[list[float]] = field(default_factory=list)  # [k], of the full distribution; empty if not kept
    entropy: list[float] = field(default_factory=list)  # of the full distribution over ln|V|: 0 certain, 1 uniform
    written: list[Written] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(slots=True)
class StepTrace:
    """One draft -> verify -> accept -> update. Node columns have one entry per node, parents before children.

    Row columns have one entry per row of the pass: row 0 is the root, row 1 + i is node i. They stay empty in the AR
    lane and in runs that were not recorded.
    """

    root_token: int  # the last committed token
    root_position: int  # its index in the answer; 0 is the first new token
    parents: list[int] = field(default_factory=list)  # index of the parent node, -1 is the root
    depths: list[int] = field(default_factory=list)  # 1 for a child of the root
    tokens: list[int] = field(default_factory=list)
    fused: list[float] = field(default_factory=list)  # chance among the siblings (TR: as tempered in its row)
    path: list[float] = field(default_factory=list)  # product of `fused` from the root down
    shares: list[Shares] = field(default_factory=list)  # what each order gave to `fused`
    orders: list[int] = field(default_factory=list)  # the order with the largest share
    agree: list[int] = field(default_factory=list)  # how many orders proposed this token here, 1 to 3
    decisions: list[str] = field(default_factory=list)  # see DECISIONS
    target_probs: list[float] = field(default_factory=list)  # the target's probability of the token at its parent
    target_ranks: list[int] = field(default_factory=list)  # 0 is the argmax
    rows: list[int] = field(default_factory=list)  # the record of what the target said at each row
    recalled: list[Indices | None] = field(default_factory=list)
    # ^ per row, the records that its key found and its children were taken from; None for a row without children
    weights: list[Shares | None] = field(default_factory=list)  # of those records in the fusion; they sum to 1
    accepted: list[int] = field(default_factory=list)  # nodes of the accepted path, from the root down
    bonus: int | None = None  # the target's own token after them; None if the answer ended inside the path
    emitted: list[int] = field(default_factory=list)  # what the step added to the answer
    margins: list[float] = field(default_factory=list)  # per emitted token, logit gap to the runner-up; AR: none
    draft_s: float = 0.0
    verify_s: float = 0.0
    accept_s: float = 0.0
    update_s: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)  # keys held after the step, by MEMORIES
    ended_s: float = 0.0  # seconds of decoding, after the prefill, until this step's end


@dataclass
class LaneTrace:
    """One decoder's run of a request, from its shared prefill to its end, or as far as it came."""

    name: str  # one of SCOPES
    tokens: list[int]  # the answer's ids, with the end-of-sequence token if the target produced it
    text: str
    prefill_s: float  # shared by the lanes of a request, measured once
    decode_s: float  # the steps, without the time the consumer of the stream took
    first_token: int  # the argmax of the prefill
    steps: list[StepTrace]
    settings: dict[str, Setting]
    stopped: str  # see STOPS
    seed_s: float = 0.0  # reading and storing the prompt's own records; 0 for AR, which needs none
    request: int = 0  # its number in the lane's persistent memory, from 1; 0 for AR, which has none
    records: Records = field(default_factory=Records)
    pictures: dict[int, str | None] = field(default_factory=dict)
    # ^ the SHA-256 of the picture of this request and of every request that wrote one of the records

    @property
    def scopes(self) -> dict[int, str]:
        """By the orders that the lane looks up: does their memory persist, or is it local?"""
        return SCOPES[self.name]

    @property
    def n_steps(self) -> int:
        return len(self.steps)

    @property
    def n_tokens(self) -> int:
        return len(self.tokens)

    @property
    def mat(self) -> float:
        """Mean accepted tokens per step: tokens after the first, which the prefill gave, over steps."""
        return (self.n_tokens - 1) / self.n_steps if self.steps else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of decoding, prefill and seeding left out."""
        return (self.n_tokens - 1) / self.decode_s if self.decode_s > 0 else 0.0

    def phase_seconds(self) -> dict[str, float]:
        """Seconds spent in each of PHASES, all steps together."""
        return {phase: sum(getattr(step, f"{phase}_s") for step in self.steps) for phase in PHASES}

    def speedup_over(self, baseline: "LaneTrace | None") -> float | None:
        """Tokens a second over the baseline's; None without a baseline that decoded anything."""
        return self.tokens_per_s / baseline.tokens_per_s if baseline and baseline.tokens_per_s else None

    @property
    def total_s(self) -> float:
        return self.prefill_s + self.seed_s + self.decode_s

    def margin_at(self, index: int) -> float | None:
        """Logit gap between the target's best and second token at answer index `index`, if this lane recorded it."""
        for step in self.steps:
            offset = index - step.root_position - 1
            if 0 <= offset < len(step.margins):
                return step.margins[offset]
        return None

    def proposers(self, step: StepTrace, node: int) -> Indices:
        """Per order, the record that proposed the node; None where that order did not propose it."""
        one, two, three = step.recalled[step.parents[node] + 1] or (None, None, None)
        token = step.tokens[node]
        return self._holding(one, token), self._holding(two, token), self._holding(three, token)

    def _holding(self, record: int | None, token: int) -> int | None:
        return record if record is not None and token in self.records.tokens[record] else None

    def written(self, step: StepTrace, node: int) -> Written | None:
        """When the record with the node's largest share was written."""
        record = self.proposers(step, node)[step.orders[node] - 1]
        return None if record is None else self.records.written[record]

    def is_other_picture(self, record: int) -> bool:
        """Was the record written in a request with another picture than this one?"""
        return self.pictures[self.records.written[record][0]] != self.pictures[self.request]

    def steps_frame(self) -> "pandas.DataFrame":
        """One row per step: sizes, what was emitted, phases in milliseconds, memory sizes."""
        import pandas

        return pandas.DataFrame(
            {
                "step": number,
                "root_position": step.root_position,
                "nodes": len(step.tokens),
                "accepted": len(step.accepted),
                "emitted": len(step.emitted),
                **{f"{phase}_ms": getattr(step, f"{phase}_s") * 1e3 for phase in PHASES},
                **step.memory,
                "ended_s": step.ended_s,
            }
            for number, step in enumerate(self.steps)
        )

    def nodes_frame(self, step: int | None = None, vocab_text: Mapping[int, str] | None = None) -> "pandas.DataFrame":
        """One row per node of one step, or of all. `vocab_text` maps token ids to text (`RequestTrace.token_text`)."""
        import pandas

        numbers = range(self.n_steps) if step is None else [step]
        return pandas.DataFrame([row for n in numbers for row in _node_rows(self, n, vocab_text or {})])


def _node_rows(lane: LaneTrace, number: int, vocab_text: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    step = lane.steps[number]
    for node, token in enumerate(step.tokens):
        yield {
            "step": number,
            "node": node,
            "parent": step.parents[node],
            "depth": step.depths[node],
            "token": token,
            "text": vocab_text.get(token, ""),
            "fused": step.fused[node],
            "path": step.path[node],
            **{f"share{order}": share for order, share in enumerate(step.shares[node], start=1)},
            "order": step.orders[node],
            "scope": lane.scopes[step.orders[node]],
            "agree": step.agree[node],
            "decision": step.decisions[node],
            "target_prob": step.target_probs[node],
            "target_rank": step.target_ranks[node],
            "written": lane.written(step, node),
        }


@dataclass
class Sensitivity:
    """How far the picture moves the target's next-token distribution at each token of the first lane's answer."""

    kl: list[float]  # nats per token, KL(with the picture || without)
    changed: list[bool]  # per token, is the argmax another one
    without: str  # one sentence: what "without the picture" means


SENSITIVE_KL = 0.5  # nats


def is_sensitive(sensitivity: Sensitivity, index: int) -> bool:
    """Is the state that chose token `index` of the answer image-sensitive?

    It is if the target would have chosen another token without the picture, or if its distribution moved by more than
    SENSITIVE_KL. The threshold is our choice; the abstract of RECAP gives no definition.
    """
    return sensitivity.changed[index] or sensitivity.kl[index] > SENSITIVE_KL


@dataclass(frozen=True)
class Difference:
    """Where a lane's answer first leaves the reference lane's, and how near a tie the target was there."""

    index: int  # into the answer
    expected: int | None  # the reference lane's token; None if its answer had ended
    got: int | None
    margin: float | None  # logit gap of the target's two best tokens; None if no lane recorded it


@dataclass(frozen=True)
class Comparison:
    """Every lane's answer against the first lane's."""

    reference: str
    differences: dict[str, Difference | None]  # per other lane; None is the very same answer

    @property
    def identical(self) -> bool:
        return not any(self.differences.values())


@dataclass
class RequestTrace:
    """One request answered by several lanes."""

    model: str
    tokenizer_sha: str
    question: str
    history: list[tuple[str, str]]  # earlier turns, question and answer
    image_sha: str | None
    image_size: tuple[int, int] | None  # width, height
    prompt_tokens: int
    prompt_end: list[int]  # the prompt's last two tokens, with which the first keys begin
    settings: dict[str, Setting]
    machine: dict[str, Setting]
    created: str  # ISO 8601, UTC
    lanes: dict[str, LaneTrace]
    token_text: dict[int, str]  # the text of every token id in the trace
    sensitivity: Sensitivity | None = None  # None until it is computed, and without a picture
    schema: int = SCHEMA_VERSION

    def comparison(self) -> Comparison:
        """Compare every lane with the first. A lane stopped half-way is compared as far as it came.

        Raises TraceError if there is no lane.
        """
        if not self.lanes:
            raise TraceError("This trace has no lanes to compare.")
        reference, *others = self.lanes.values()
        return Comparison(reference.name, {lane.name: _first_difference(reference, lane) for lane in others})

    def key(self, lane: LaneTrace, step: StepTrace, row: int) -> tuple[int, ...]:
        """The tokens of a row's three-token key, the row's own last; its last two and last one are the other keys."""
        path: list[int] = []
        while row > 0 and len(path) < 3:
            path.append(step.tokens[row - 1])
            row = step.parents[row - 1] + 1
        return (*self.prompt_end, *lane.tokens[: step.root_position + 1], *reversed(path))[-3:]

    def to_json(self) -> str:
        """Compact JSON; numbers keep six significant digits. Raises TraceError for one that is not finite."""
        return _json(self)

    @classmethod
    def from_json(cls, text: str) -> "RequestTrace":
        """Read what `to_json` wrote. Raises TraceError for anything else."""
        from recap_engine.trace_reader import parse

        return parse(text)

    def save(self, path: str | Path) -> None:
        """Write `.json`, or `.gz` if the name ends in it, in one go. Raises RecapError; the old file then stays."""
        data = self.to_json().encode()
        packed = gzip.compress(data, 6, mtime=0) if str(path).endswith(".gz") else data
        replace_file(Path(path), packed, "The trace")

    @classmethod
    def load(cls, path: str | Path) -> "RequestTrace":
        """Read a file, gzipped or not. Raises TraceError; nothing past MAX_BYTES is ever read or decompressed."""
        try:
            with open(path, "rb") as file:
                packed = file.read(2) == b"\x1f\x8b"  # whatever its name: browsers rename and unpack files
                file.seek(0)
                data = (gzip.GzipFile(fileobj=file) if packed else file).read(MAX_BYTES + 1)
        except (EOFError, OSError, ValueError, zlib.error) as error:
            raise TraceError("This trace cannot be opened: the file is missing or damaged.") from error
        try:
            return cls.from_json(data.decode())
        except UnicodeDecodeError as error:
            raise TraceError("This file is not a trace: it is not text.") from error


def _first_difference(reference: LaneTrace, lane: LaneTrace) -> Difference | None:
    a, b = reference.tokens, lane.tokens
    index = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    cut_short = {reference.stopped, lane.stopped} & {"cancelled", "error"}
    if index == len(a) == len(b) or (cut_short and index in (len(a), len(b))):
        return None
    margin = lane.margin_at(index)
    return Difference(
        index,
        expected=a[index] if index < len(a) else None,
        got=b[index] if index < len(b) else None,
        margin=reference.margin_at(index) if margin is None else margin,
    )


def decisions(parents: Sequence[int], accepted: Sequence[int]) -> list[str]:
    """Per node: accepted, rejected (its parent was reached, it is not the argmax) or unreached (its parent was not)."""
    kept = set(accepted)
    reached = {ROOT, *accepted}
    return [
        "accepted" if node in kept else "rejected" if parent in reached else "unreached"
        for node, parent in enumerate(parents)
    ]


_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_digits = "%.6g".__mod__


def _json(value: Any) -> str:
    """Any part of a trace as JSON. Lists of numbers, which are nearly all of it, are written in one go."""
    if isinstance(value, float):
        return _json([value])[1:-1]
    if is_dataclass(value):
        value = {column.name: getattr(value, column.name) for column in fields(value)}
    if isinstance(value, dict):
        return "{" + ",".join(f"{_dumps(str(key))}:{_json(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, (list, tuple)):
        return _dumps(value)
    kinds = set(map(type, value))
    if float in kinds and kinds <= {float, int}:  # a whole number may stand for a float
        if not all(map(math.isfinite, value)):
            raise TraceError("This trace holds a number that is not finite, so it cannot be saved.")
        return f"[{','.join(map(_digits, value))}]"
    return _dumps(value) if kinds <= {int, str, bool} else f"[{','.join(map(_json, value))}]"
