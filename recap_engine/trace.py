"""What was recorded: dataclasses <-> JSON <-> pandas.

A `RequestTrace` is one request (a picture and a question) answered by several lanes; a `LaneTrace` is one decoder's run
of it; a `StepTrace` is one draft -> verify -> accept -> update. Trees are kept as columns (one list per property, one
entry per node) because that is cheap to record and small on disk. A file is plain JSON (`.json`) or the same gzipped
(`.json.gz`): it holds no code, and a reader checks every value against the annotations below before it trusts it.
"""

import gzip
import json
import math
import types
import typing
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap_engine.errors import RecapError

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 2
MAX_BYTES = 64 * 2**20  # of JSON text, after decompression
DECISIONS = ("accepted", "rejected", "unreached")
STOPS = ("eos", "length", "cancelled", "error")
SCOPES = {1: "persistent", 2: "local", 3: "local"}  # by the order of the source
PHASES = ("draft", "verify", "accept", "update")
ROOT = -1  # the parent of the nodes of depth 1

Written = tuple[int, int, bool]  # request number, step (-1: the prompt's own prefill), was the position accepted


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


PerOrder = tuple[int | None, int | None, int | None]  # indices into the lane's records, of orders 1, 2 and 3
Weights = tuple[float, float, float]


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
    shares: list[tuple[float, float, float]] = field(default_factory=list)  # of orders 1, 2, 3; they sum to `fused`
    orders: list[int] = field(default_factory=list)  # the order with the largest share
    agree: list[int] = field(default_factory=list)  # how many orders proposed this token here, 1 to 3
    decisions: list[str] = field(default_factory=list)  # see DECISIONS
    target_probs: list[float] = field(default_factory=list)  # the target's probability of the token at its parent
    target_ranks: list[int] = field(default_factory=list)  # 0 is the argmax
    rows: list[int] = field(default_factory=list)  # the record of what the target said at each row
    recalled: list[PerOrder | None] = field(default_factory=list)
    # ^ per row, the records that its key found and its children were taken from; None for a row without children
    weights: list[Weights | None] = field(default_factory=list)  # of those records in the fusion; they sum to 1
    accepted: list[int] = field(default_factory=list)  # nodes of the accepted path, from the root down
    bonus: int | None = None  # the target's own token after them; None if the answer ended inside the path
    emitted: list[int] = field(default_factory=list)  # what the step added to the answer
    margins: list[float] = field(default_factory=list)  # per emitted token, logit gap to the runner-up; AR: none
    draft_s: float = 0.0
    verify_s: float = 0.0
    accept_s: float = 0.0
    update_s: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)  # {"order1": rows, "order2": keys, "order3": keys}
    ended_s: float = 0.0  # seconds of decoding, after the prefill, until this step's end


@dataclass
class LaneTrace:
    """One decoder's run of a request, from its shared prefill to its end."""

    name: str  # "ar", "tr" or "recap"
    tokens: list[int]  # the answer's ids, with the end-of-sequence token if the target produced it
    text: str
    prefill_s: float  # shared by the lanes of a request, measured once
    decode_s: float  # the steps, without the time the consumer of the stream took
    first_token: int  # the argmax of the prefill
    steps: list[StepTrace]
    settings: dict[str, Any]
    stopped: str  # see STOPS
    seed_s: float = 0.0  # reading and storing the prompt's own records; 0 for AR, which needs none
    request: int = 0  # its number in the lane's persistent memory, from 1; 0 for AR, which has none
    records: Records = field(default_factory=Records)
    pictures: dict[int, str | None] = field(default_factory=dict)
    # ^ the SHA-256 of the picture of this request and of every request that wrote one of the records

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

    def proposers(self, step: StepTrace, node: int) -> PerOrder:
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
            **{f"share{order}": step.shares[node][order - 1] for order in SCOPES},
            "order": step.orders[node],
            "scope": SCOPES[step.orders[node]],
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
    settings: dict[str, Any]
    machine: dict[str, Any]
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
        """Compact JSON; numbers keep six significant digits."""
        return json.dumps(_rounded(asdict(self)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "RequestTrace":
        """Read what `to_json` wrote. Raises TraceError for anything else."""
        if len(text) > MAX_BYTES:
            raise TraceError(f"This trace is larger than the {MAX_BYTES // 2**20} MB that are read.")
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except (json.JSONDecodeError, RecursionError) as error:
            raise TraceError("This file is not a trace: it is not valid JSON.") from error
        if not isinstance(data, dict) or "schema" not in data:
            raise TraceError("This file is not a trace: it names no schema version.")
        if data["schema"] != SCHEMA_VERSION:
            raise TraceError(f"This trace has schema {data['schema']!r:.20}; this reader knows only {SCHEMA_VERSION}.")
        trace = _read(cls, data, "trace")
        for name, lane in trace.lanes.items():
            _check_lane(name, lane)
        return trace

    def save(self, path: str | Path) -> None:
        """Write `.json`, or gzipped when the name ends in `.gz`."""
        data = self.to_json().encode()
        Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)

    @classmethod
    def load(cls, path: str | Path) -> "RequestTrace":
        """Read a `.json` or `.json.gz` file. Raises TraceError; nothing past MAX_BYTES is ever decompressed."""
        try:
            with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except (EOFError, OSError, zlib.error) as error:
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


def _rounded(value: Any) -> Any:
    """The same value with floats at six significant digits and string keys, ready for JSON."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value


# Reading: every value is checked against the dataclasses' own annotations, then trees against each other.


def _refuse_constant(name: str) -> None:
    raise TraceError(f"This trace holds {name}, which is not a number.")


_hints = cache(typing.get_type_hints)


def _read(kind: Any, value: Any, where: str) -> Any:
    """`value`, parsed from JSON, as the annotated type `kind`. `where` names it in the error message."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    if kind is type(None) and value is None:
        return None
    if origin is types.UnionType:
        member = next(m for m in arguments if (m is type(None)) == (value is None))
        return _read(member, value, where)
    if origin is list and isinstance(value, list):
        return [_read(arguments[0], item, where) for item in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(arguments):
        return tuple(_read(k, item, where) for k, item in zip(arguments, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {_key(arguments[0], k, where): _read(arguments[1], v, f"{where}.{k:.20}") for k, v in value.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        missing = [f.name for f in fields(kind) if f.name not in value]
        if missing:
            raise TraceError(f"This trace is incomplete: {where} lacks {missing[0]}.")
        return kind(**{f.name: _read(_hints(kind)[f.name], value[f.name], f"{where}.{f.name}") for f in fields(kind)})
    raise TraceError(f"This trace is malformed: {where} holds a value of the wrong kind.")


def _key(kind: type, text: str, where: str) -> Any:
    if kind is int and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise TraceError(f"This trace is malformed: {where} has a key that is not a number.")
    return kind(text)


def _check_lane(name: str, lane: LaneTrace) -> None:
    """Raise TraceError unless the lane's steps are well-formed trees that add up to its answer."""
    if lane.name != name or lane.stopped not in STOPS:
        raise TraceError(f"This trace is malformed: lane {name:.20} has a wrong name or end.")
    answer = [lane.first_token]
    for number, step in enumerate(lane.steps):
        where = f"step {number} of lane {name:.20}"
        if step.root_position != len(answer) - 1 or step.root_token != answer[-1]:
            raise TraceError(f"This trace is malformed: {where} does not start where the step before it ended.")
        _check_tree(step, where)
        answer += step.emitted
    if answer != lane.tokens:
        raise TraceError(f"This trace is malformed: the steps of lane {name:.20} do not add up to its answer.")


NODE_COLUMNS = (
    *("parents", "depths", "tokens", "fused", "path", "shares", "orders", "agree", "decisions"),
    *("target_probs", "target_ranks"),
)
ROW_COLUMNS = ("rows", "recalled", "weights")


def _check_tree(step: StepTrace, where: str) -> None:
    size = len(step.tokens)
    if any(len(getattr(step, column)) != size for column in NODE_COLUMNS):
        raise TraceError(f"This trace is malformed: {where} has columns of different lengths.")
    if any(len(getattr(step, column)) != len(step.rows) for column in ROW_COLUMNS) or len(step.rows) not in (
        1 + size,
        size and 1 + size,
    ):
        raise TraceError(f"This trace is malformed: {where} has columns of different lengths.")
    for node, parent in enumerate(step.parents):
        if not ROOT <= parent < node or step.depths[node] != (1 if parent == ROOT else step.depths[parent] + 1):
            raise TraceError(f"This trace is malformed: node {node} of {where} does not hang on an earlier node.")
    if not (set(step.decisions) <= set(DECISIONS) and set(step.orders) <= set(SCOPES) and set(step.agree) <= {1, 2, 3}):
        raise TraceError(f"This trace is malformed: {where} has an unknown decision or source.")
    at = ROOT
    for node in step.accepted:
        if not 0 <= node < size or step.parents[node] != at:
            raise TraceError(f"This trace is malformed: the accepted nodes of {where} are not a path from its root.")
        at = node
