"""Why a candidate is in the tree, or why the target's own token is not: what each key recalled, and what it gave.

Pure data from the trace; `why_panel.py` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recap_engine.trace import ROOT, LaneTrace, RequestTrace, StepTrace
from recap_engine.weighting import chances


@dataclass(frozen=True)
class Said:
    """One line of a record: a token and how likely the target held it."""

    token: int
    probability: float
    chance: float  # the probability tempered: how likely the token is the argmax when the key comes up again


@dataclass(frozen=True)
class Source:
    """What one order's key led to at one row."""

    order: int
    key: tuple[int, ...]
    lines: tuple[Said, ...] = ()  # of the record found, best first; none where the key had no record
    record: int | None = None  # its index in the lane's records
    used: bool = True  # False: the tree drew nothing from it; it is what this answer had last written under the key
    rank: int | None = None  # of the candidate in the record, from 0; None where the record doesn't name it
    weight: float | None = None  # of the record in the fusion
    share: float = 0.0  # what it gave to the candidate's fused score: weight x chance
    entropy: float = 0.0  # of the target's full distribution there: 0 certain, 1 uniform
    request: int = 0
    step: int = 0  # -1: the prompt's own prefill
    accepted: bool = False  # was the position it was written at accepted
    other_picture: bool = False

    @property
    def confidence(self) -> float:
        """The top probability, less the part that the entropy takes away (see `recap_engine.weighting`)."""
        return self.lines[0].probability * (1.0 - self.entropy) if self.lines else 0.0


@dataclass(frozen=True)
class Why:
    """A candidate, or the bonus token that was none, with everything that speaks for it."""

    token: int
    after: int  # the token that it was to follow
    node: int | None  # None: the bonus token
    decision: str  # accepted, rejected, unreached or bonus
    fused: float  # the sum of the sources' shares; of a bonus token what it would have scored
    path: float  # along its path; of a bonus token what it would have been
    sources: tuple[Source, ...]
    said: tuple[Said, ...]  # by the target at that position, best first
    target_rank: int
    target_probability: float | None
    siblings: int  # how many candidates were tried at that position
    weakest: float | None  # the smallest path probability in the tree

    @property
    def choice(self) -> int | None:
        """What the target chose at that position."""
        return self.said[0].token if self.said else None


def explain(trace: RequestTrace, lane: LaneTrace, number: int, node: int) -> Why:
    """Why `node` of step `number` was drafted. One past the last node is the bonus token: why was it not?"""
    step = lane.steps[number]
    is_bonus = node == len(step.tokens)
    parent = (step.accepted[-1] if step.accepted else ROOT) if is_bonus else step.parents[node]
    token = step.bonus if is_bonus else step.tokens[node]
    assert token is not None, "a step without a bonus token has no such node"
    row = parent + 1
    said = _lines(lane, step.rows[row]) if step.rows else ()
    sources = tuple(_sources(trace, lane, number, row, token))
    fused = sum(source.share for source in sources) if is_bonus else step.fused[node]
    above = 1.0 if parent == ROOT else step.path[parent]
    return Why(
        token=token,
        after=step.root_token if parent == ROOT else step.tokens[parent],
        node=None if is_bonus else node,
        decision="bonus" if is_bonus else step.decisions[node],
        fused=fused,
        path=fused * above if is_bonus else step.path[node],
        sources=sources,
        said=said,
        target_rank=0 if is_bonus else step.target_ranks[node],
        target_probability=(said[0].probability if said else None) if is_bonus else step.target_probs[node],
        siblings=step.parents.count(parent),
        weakest=min(step.path, default=None),
    )


def _sources(trace: RequestTrace, lane: LaneTrace, number: int, row: int, token: int) -> Iterator[Source]:
    """One source for every order the lane looks up; Token Recycling has the one-token key alone."""
    step = lane.steps[number]
    if not step.rows:
        return
    key = trace.key(lane, step, row)
    recalled, weights = step.recalled[row], step.weights[row]
    for order in lane.scopes:
        short = key[-order:]
        if recalled is not None and weights is not None:
            yield _source(lane, order, short, recalled[order - 1], token, weights[order - 1])
        else:
            yield _source(lane, order, short, last_written(trace, lane, number, short), token, None)


def _source(
    lane: LaneTrace, order: int, key: tuple[int, ...], record: int | None, token: int, weight: float | None
) -> Source:
    if record is None:
        return Source(order, key, used=weight is not None)
    lines = _lines(lane, record)
    rank = next((at for at, line in enumerate(lines) if line.token == token), None)
    request, step, accepted = lane.records.written[record]
    return Source(
        order=order,
        key=key,
        lines=lines,
        record=record,
        used=weight is not None,
        rank=rank,
        weight=weight,
        share=0.0 if rank is None or weight is None else weight * lines[rank].chance,
        entropy=lane.records.entropy[record],
        request=request,
        step=step,
        accepted=accepted,
        other_picture=lane.is_other_picture(record),
    )


def _lines(lane: LaneTrace, record: int) -> tuple[Said, ...]:
    """A record's lines; none if its probabilities were not kept."""
    tokens, probabilities = lane.records.tokens[record], lane.records.probabilities[record]
    if not probabilities:
        return ()
    return tuple(map(Said, tokens, probabilities, chances(probabilities)))


def last_written(trace: RequestTrace, lane: LaneTrace, number: int, key: tuple[int, ...]) -> int | None:
    """The record that the steps before `number` last left under `key`; None if this answer has not met the key.

    A trace keeps no record that nothing was drafted from, so where the tree ends this says what was there to draft
    from. What the prompt or an earlier request left is not seen: with one-token keys there may have been a record.
    """
    for step in reversed(lane.steps[:number]):
        ending = [row for row, token in enumerate([step.root_token, *step.tokens]) if token == key[-1]]
        rows = [row for row in ending if step.rows and trace.key(lane, step, row)[-len(key) :] == key]
        if rows:
            return step.rows[max(rows, key=lambda row: _written_order(step, row))]
    return None


def _written_order(step: StepTrace, row: int) -> tuple[bool, int]:
    """Sorts the rows of a step as they were written: the root and the accepted path after all others."""
    return row == 0 or row - 1 in step.accepted, row
