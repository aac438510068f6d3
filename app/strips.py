"""The answer token by token, as HTML: a box per token in the colour of its source, grouped by step.

`inspector.js` makes the boxes open their step and follows the step that is shown; without it they still say it all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from app.marks import BONUS_COLOUR, LANES, NEUTRAL, SOURCES, SourceMark, shown
from recap_engine.trace import LaneTrace

FIRST = SourceMark("first token, from the prefill", NEUTRAL)
BONUS = SourceMark("bonus: the target's own token", BONUS_COLOUR)
OWN = SourceMark("the target's own token", NEUTRAL)  # where nothing was drafted


@dataclass(frozen=True)
class Origin:
    """Where one token of an answer came from."""

    token: int
    step: int | None  # None for the first token, which the prefill gave
    first: bool  # of its step
    source: SourceMark
    probability: float | None  # the target's; None where the trace doesn't tell


def origins(lane: LaneTrace) -> Iterator[Origin]:
    """One `Origin` per token of the answer, in its order."""
    yield Origin(lane.first_token, None, True, FIRST, None)
    for number, step in enumerate(lane.steps):
        for place, token in enumerate(step.emitted):
            if place < len(step.accepted):
                node = step.accepted[place]
                source = SOURCES[lane.name][step.orders[node]]
                probability: float | None = step.target_probs[node]
            else:
                source = BONUS if step.tokens else OWN
                probability = _said(lane, number, place)
            yield Origin(token, number, place == 0, source, probability)


def _said(lane: LaneTrace, number: int, place: int) -> float | None:
    """The target's probability of its own choice after `place` accepted nodes."""
    step = lane.steps[number]
    if not step.rows:
        return None
    row = step.accepted[place - 1] + 1 if place else 0
    probabilities = lane.records.probabilities[step.rows[row]]
    return probabilities[0] if probabilities else None


def answer_strip(lane: LaneTrace, number: int, token_text: Mapping[int, str]) -> str:
    """The whole answer of one lane; the tokens of step `number` are marked."""
    return aligned_strips([lane], lane.name, number, token_text)


def aligned_strips(lanes: Sequence[LaneTrace], current: str, number: int, token_text: Mapping[int, str]) -> str:
    """The answers of several lanes under each other: the same token position stands in the same column.

    The tokens of step `number` of the lane `current` are marked.
    """
    rows = [list(origins(lane)) for lane in lanes]
    columns = []
    for index in range(max(map(len, rows), default=0)):
        boxes = [
            _box(lane.name, row[index], lane.name == current and row[index].step == number, token_text)
            if index < len(row)
            else "<span></span>"
            for lane, row in zip(lanes, rows, strict=True)
        ]
        columns.append(f'<span class="column">{"".join(boxes)}</span>')
    names = "".join(f'<span style="--lane:{LANES[lane.name].colour}">{LANES[lane.name].short}</span>' for lane in lanes)
    head = f'<span class="column names" aria-hidden="true">{names}</span>' if len(lanes) > 1 else ""
    label = "The answer, token by token" + (": the lanes under each other" if len(lanes) > 1 else "")
    return f'<div class="strip" role="group" aria-label="{label}">{head}{"".join(columns)}</div>'


def _box(lane: str, origin: Origin, current: bool, token_text: Mapping[int, str]) -> str:
    text = shown(origin.token, token_text)
    when = "before the first step" if origin.step is None else f"step {origin.step + 1}"
    told = f"{LANES[lane].short}, {when}: {origin.source.name}"
    if origin.probability is not None:
        told += f". The target gave it {origin.probability:.3f}"
    classes = {"first": origin.first, "now": current, "outlives": origin.source.outlives}
    marks = " ".join(name for name, given in classes.items() if given)
    step = "" if origin.step is None else f' data-step="{origin.step}"'
    return (
        f'<button type="button" class="{marks}" tabindex="-1" style="--source:{origin.source.colour}"'
        f' data-lane="{lane}"{step} title="{escape(told)}">{escape(text)}</button>'
    )
