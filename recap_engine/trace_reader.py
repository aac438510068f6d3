"""Reading a trace that may come from anywhere: JSON text -> a `RequestTrace` that keeps what `trace` promises.

First every value is checked against the annotations of the dataclasses, many at a time: a field is read for all steps
at once, a list of lists as one long list. Then the parts are checked against each other: indices point at something,
trees are trees, steps add up to the answer. Whatever is wrong is told in one sentence, as a `TraceError`.
"""

import gc
import json
import math
import sys
import types
import typing
from collections.abc import Container, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from itertools import chain, islice
from typing import Any

from recap_engine.trace import (
    MAX_BYTES,
    MAX_LISTS,
    MAX_NODES,
    MAX_NUMBER,
    MAX_STEPS,
    MAX_TEXT,
    MAX_TOP_K,
    MEMORIES,
    ROOT,
    SCHEMA_VERSION,
    SCOPES,
    STOPS,
    LaneTrace,
    Records,
    RequestTrace,
    Setting,
    StepTrace,
    TraceError,
    decisions,
)

NODE_COLUMNS = (
    *("parents", "depths", "tokens", "fused", "path", "shares", "orders", "agree", "decisions"),
    *("target_probs", "target_ranks"),
)
ROW_COLUMNS = ("rows", "recalled", "weights")
SLACK = 1e-4  # numbers are kept to six digits, so sums of them are not exact
LARGEST = sys.float_info.max


def parse(text: str) -> RequestTrace:
    """The trace that `text` holds. Raises TraceError if it holds none, or a malformed one."""
    if len(text) > MAX_BYTES:
        raise TraceError(f"This trace is larger than the {MAX_BYTES // 2**20} MB that are read.")
    if text.count("[") + text.count("{") > MAX_LISTS:
        raise TraceError(f"This trace is larger than any real one: it holds over {MAX_LISTS:,} lists.")
    with _no_collections():
        trace = _read(text)
        _check(trace)
    return trace


@contextmanager
def _no_collections() -> Iterator[None]:
    """A million lists at once, all of them kept: looking for garbage among them takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read(text: str) -> RequestTrace:
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except TraceError:
        raise
    except (ValueError, RecursionError) as error:
        raise TraceError("This file is not a trace: it is not valid JSON.") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise TraceError("This file is not a trace: it names no schema version.")
    if type(data["schema"]) is not int or data["schema"] != SCHEMA_VERSION:
        raise TraceError(f"This trace has schema {data['schema']!r:.20}; this reader knows only {SCHEMA_VERSION}.")
    (trace,) = _column(RequestTrace, [data], "trace")
    return trace


def _refuse_constant(name: str) -> None:
    raise TraceError(f"This trace holds {name}, which is not a number.")


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise TraceError(f"This trace is malformed: {otherwise}.")


# Kinds: every value against its annotation.

_hints = cache(typing.get_type_hints)


def _column(kind: Any, values: Sequence[Any], where: str) -> Sequence[Any]:
    """`values`, parsed from JSON, each as the annotated type `kind`: the very same ones if they need no change.

    `where` names them in the error message.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    found = set(map(type, values))
    if kind in (int, float, str, bool):
        _check_scalars(kind, values, found, where)
        return values
    if kind == Setting:
        _demand(found <= {int, float, str, bool, types.NoneType}, f"{where} holds a value of the wrong kind")
        for scalar in found - {bool, types.NoneType}:
            _check_scalars(scalar, [value for value in values if type(value) is scalar], {scalar}, where)
        return values
    if origin is types.UnionType:  # of one kind and None
        (member,) = set(arguments) - {types.NoneType}
        present = iter(_column(member, [value for value in values if value is not None], where))
        return [None if value is None else next(present) for value in values]
    if origin is list and found <= {list}:
        flat = list(chain.from_iterable(values))
        read = _column(arguments[0], flat, where)
        return values if read is flat else _cut(read, values)
    if origin is tuple and found <= {list} and set(map(len, values)) <= {len(arguments)}:
        for part_kind, part in zip(arguments, zip(*values)):  # scalars, or scalars and None
            _column(part_kind, part, where)
        return list(map(tuple, values))
    if origin is dict and found <= {dict}:
        keys = [_keys(arguments[0], value, where) for value in values]
        items = _column(arguments[1], list(chain.from_iterable(value.values() for value in values)), where)
        return [dict(zip(*pair)) for pair in zip(keys, _cut(items, values))]
    if is_dataclass(kind) and found <= {dict}:
        return _objects(kind, values, where)
    raise TraceError(f"This trace is malformed: {where} holds a value of the wrong kind.")


def _cut(flat: Iterable[Any], shapes: Iterable[Sized]) -> list[list[Any]]:
    """One long list in pieces as long as each of `shapes`."""
    items = iter(flat)
    return [list(islice(items, len(shape))) for shape in shapes]


def _check_scalars(kind: type, values: Sequence[Any], found: set[type], where: str) -> None:
    """A whole number may stand for a float."""
    _demand(found <= ({int, float} if kind is float else {kind}), f"{where} holds a value of the wrong kind")
    if kind is int:
        _demand(_within(values, ROOT, MAX_NUMBER), f"{where} holds a number out of range")
    elif kind is float:
        _demand(_within(values, -LARGEST, LARGEST) and not any(map(math.isnan, values)), f"{where} is not finite")
    elif kind is str:
        _demand(max(map(len, values), default=0) <= MAX_TEXT, f"{where} holds a text that is too long")
        _demand(all(v.isascii() or _is_unicode(v) for v in values), f"{where} holds text that is not valid Unicode")


def _is_unicode(text: str) -> bool:
    """JSON can spell half of a surrogate pair, which no file or page can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _within(values: Iterable[float], low: float, high: float) -> bool:
    return min(values, default=low) >= low and max(values, default=high) <= high


def _keys(kind: type, value: dict[str, Any], where: str) -> list[Any]:
    if kind is int:
        numeric = all(key.isascii() and key.isdigit() and len(key) < 10 for key in value)
        _demand(numeric, f"{where} has a key that is not a number")
        return list(map(int, value))
    return list(_column(str, list(value), where))


def _objects(kind: Any, values: Sequence[dict[str, Any]], where: str) -> list[Any]:
    """Dataclasses, field by field; fields that the schema does not know are left out."""
    columns = []
    for column in fields(kind):
        if not all(column.name in value for value in values):
            raise TraceError(f"This trace is incomplete: {where} lacks {column.name}.")
        found = [value[column.name] for value in values]
        columns.append(_column(_hints(kind)[column.name], found, f"{where}.{column.name}"))
    return [kind(*row) for row in zip(*columns)]


# Sense: every part against the others.


def _check(trace: RequestTrace) -> None:
    for name, lane in trace.lanes.items():
        if name not in SCOPES:
            raise TraceError(f"This trace has a lane that this program does not know, {name:.16}.")
        _check_lane(name, lane)
    _demand(min(trace.prompt_tokens, *trace.prompt_end, *(trace.image_size or ())) >= 0, "it holds a negative number")
    _demand(len(trace.prompt_end) <= 2, "it holds more than the end of the prompt")
    try:
        datetime.fromisoformat(trace.created)
    except ValueError as error:
        raise TraceError("This trace is malformed: it does not say when it was made.") from error
    if trace.sensitivity is not None:
        _demand(bool(trace.lanes), "it has image sensitivity and no answer")
        size = next(iter(trace.lanes.values())).n_tokens
        kl, changed = trace.sensitivity.kl, trace.sensitivity.changed
        _demand(len(kl) == len(changed) == size, "its image sensitivity is of an answer of another length")
        _demand(min(kl, default=0.0) >= 0.0, "its image sensitivity is negative")


def _check_lane(name: str, lane: LaneTrace) -> None:
    where = f"lane {name}"
    _demand(lane.name == name, f"{where} has another name")
    _demand(lane.stopped in STOPS, f"{where} has an unknown end")
    _demand(len(lane.steps) <= MAX_STEPS, f"{where} has more than {MAX_STEPS} steps")
    _demand(_within(lane.tokens, 0, MAX_NUMBER), f"{where} has a negative token")
    _demand(min(lane.prefill_s, lane.decode_s, lane.seed_s) >= 0.0, f"{where} has a negative time")
    _check_records(lane, where)
    answer, ended_s = [lane.first_token], 0.0
    for number, step in enumerate(lane.steps):
        here = f"step {number} of {where}"
        _demand(
            step.root_position == len(answer) - 1 and step.root_token == answer[-1],
            f"{here} does not start where the step before it ended",
        )
        _demand(min(step.draft_s, step.verify_s, step.accept_s, step.update_s) >= 0.0, f"{here} has a negative time")
        _demand(step.ended_s >= ended_s, f"{here} ends before the step before it")
        _demand(
            set(step.memory) <= set(MEMORIES) and _within(step.memory.values(), 0, MAX_NUMBER),
            f"{here} has an unknown memory",
        )
        _check_tree(step, lane.scopes, here)
        _check_rows(step, lane.records, here)
        _check_emitted(step, here)
        answer += step.emitted
        ended_s = step.ended_s
    _demand(answer == lane.tokens, f"the steps of {where} do not add up to its answer")


def _check_records(lane: LaneTrace, where: str) -> None:
    records, pictures = lane.records, lane.pictures
    sizes = list(map(len, records.tokens))
    columns = (records.probabilities, records.entropy, records.written)
    _demand(all(len(column) == len(sizes) for column in columns), f"the records of {where} have different lengths")
    _demand(_within(sizes, 1, MAX_TOP_K), f"a record of {where} holds no tokens, or more than {MAX_TOP_K}")
    _demand(
        all(len(p) in (0, size) for p, size in zip(records.probabilities, sizes)),
        f"a record of {where} has not a probability for each token",
    )
    flat = list(chain.from_iterable(records.probabilities))
    _demand(_within(chain.from_iterable(records.tokens), 0, MAX_NUMBER), f"a record of {where} has a negative token")
    _demand(_within(flat, 0.0, 1.0) and _within(records.entropy, 0.0, 1.0), f"a record of {where} has no probabilities")
    _demand(all(p[0] > 0.0 for p in records.probabilities if p), f"the best token of a record of {where} is impossible")
    requests = {request for request, _, _ in records.written}
    _demand(
        lane.request >= 0 and (requests | {lane.request} if records.tokens else requests) <= set(pictures),
        f"{where} does not say which pictures its records are of",
    )


def _check_tree(step: StepTrace, scopes: Container[int], where: str) -> None:
    size = len(step.tokens)
    _demand(size <= MAX_NODES, f"{where} has more than {MAX_NODES} nodes")
    _demand(
        all(len(getattr(step, column)) == size for column in NODE_COLUMNS),
        f"{where} has columns of different lengths",
    )
    for node, (parent, depth) in enumerate(zip(step.parents, step.depths)):
        if not ROOT <= parent < node or depth != (1 if parent == ROOT else step.depths[parent] + 1):
            raise TraceError(f"This trace is malformed: node {node} of {where} does not hang on an earlier node.")
    _demand(_within(step.tokens, 0, MAX_NUMBER), f"{where} has a negative token")
    _demand(len(set(zip(step.parents, step.tokens))) == size, f"{where} has the same candidate twice")
    probabilities = (step.fused, step.path, step.target_probs, chain.from_iterable(step.shares))
    _demand(
        all(_within(column, 0.0, 1.0 + SLACK) for column in probabilities),
        f"{where} has a probability that is not from 0 to 1",
    )
    _demand(
        all(abs(one + two + three - fused) < SLACK for (one, two, three), fused in zip(step.shares, step.fused)),
        f"{where} has shares that do not add up",
    )
    _demand(
        all(map(scopes.__contains__, set(step.orders)))
        and set(step.agree) <= {1, 2, 3}
        and _within(step.target_ranks, 0, MAX_NUMBER),
        f"{where} has an unknown source or rank",
    )
    at = ROOT
    for node in step.accepted:
        _demand(0 <= node < size and step.parents[node] == at, f"the accepted nodes of {where} are not a path")
        at = node
    _demand(step.decisions == decisions(step.parents, step.accepted), f"{where} has a wrong decision")


def _check_rows(step: StepTrace, records: Records, where: str) -> None:
    size = len(step.rows)
    _demand(
        all(len(getattr(step, column)) == size for column in ROW_COLUMNS)
        and size in ((0, 1) if not step.tokens else (1 + len(step.tokens),)),
        f"{where} has columns of different lengths",
    )
    recalled = [index for row in step.recalled if row for index in row if index is not None]
    _demand(_within([*step.rows, *recalled], 0, len(records) - 1), f"{where} names a record that isn't there")
    inner = {parent + 1 for parent in step.parents}
    for row, (found, weights) in enumerate(zip(step.recalled, step.weights)):
        _demand(
            (found is not None) == (weights is not None) == (row in inner),
            f"row {row} of {where} says of its children what cannot be",
        )
        if weights is not None:
            _demand(
                _within(weights, 0.0, 1.0 + SLACK) and abs(sum(weights) - 1.0) < SLACK,
                f"row {row} of {where} has weights that do not add up",
            )
    for node, (parent, order, token) in enumerate(zip(step.parents, step.orders, step.tokens)):
        record = step.recalled[parent + 1][order - 1]  # type: ignore[index]  # its row has children, so it is there
        if record is None or token not in records.tokens[record]:
            raise TraceError(f"This trace is malformed: node {node} of {where} is not in the record it came from.")


def _check_emitted(step: StepTrace, where: str) -> None:
    """A recorded step adds its accepted path and the bonus token; one without a tree just ends in the latter."""
    ending = [] if step.bonus is None else [step.bonus]
    path = [step.tokens[node] for node in step.accepted]
    adds_up = step.emitted == path + ending if step.rows else step.emitted[-len(ending) :] == ending or not ending
    _demand(bool(step.emitted) and adds_up, f"{where} does not add what it accepted")
    _demand(
        len(step.margins) <= len(step.emitted) and min(step.margins, default=0.0) >= 0.0,
        f"{where} has margins of tokens it did not add",
    )
