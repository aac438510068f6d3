"""Which step of a recorded trace shows what a page of the lesson says, and which nodes to point at: rules, no numbers.

A rule looks at every step that drafted and takes the one that fits best, so it finds one in any trace with a tree; the
words of a page (see `lesson_facts.py`) are then made for what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from recap_engine.trace import ROOT, LaneTrace, RequestTrace, StepTrace, is_sensitive
from recap_engine.trace_reader import NODE_COLUMNS, ROW_COLUMNS


@dataclass(frozen=True)
class Moment:
    """One step of one lane, and the nodes that a page points at, the chosen one last."""

    trace: RequestTrace
    lane: LaneTrace
    number: int  # of the step, from 0
    nodes: tuple[int, ...] = ()

    @property
    def whole(self) -> LaneTrace:
        """The lane as it was recorded; a rule may have made a simpler one of it."""
        return self.trace.lanes[self.lane.name]

    @property
    def step(self) -> StepTrace:
        return self.lane.steps[self.number]

    @property
    def node(self) -> int:
        """The chosen node; the first one where the page chose none."""
        return self.nodes[-1] if self.nodes else 0


Pick = Callable[[RequestTrace, LaneTrace], Moment]


# ---- what can be seen in one step --------------------------------------------------------------------------------


def first_child(step: StepTrace, parent: int) -> int | None:
    """The best guess under a node or under the root: siblings stand in falling order."""
    return next((node for node, above in enumerate(step.parents) if above == parent), None)


def first_line(step: StepTrace) -> list[int]:
    """The chain inside the tree: the best guess after the root, the best guess after that one, and so on."""
    line: list[int] = []
    while (node := first_child(step, line[-1] if line else ROOT)) is not None:
        line.append(node)
    return line


def accepted_of_line(step: StepTrace) -> int:
    """How many nodes would have been accepted if only the first line had been drafted."""
    return sum(step.decisions[node] == "accepted" for node in first_line(step))


def only(step: StepTrace, nodes: Sequence[int]) -> StepTrace:
    """The step as if just these of its nodes had been drafted; each comes after its parent."""
    place = {ROOT: ROOT, **{node: place for place, node in enumerate(nodes)}}
    rows = [0, *(node + 1 for node in nodes)] if step.rows else []
    columns = {name: [getattr(step, name)[node] for node in nodes] for name in NODE_COLUMNS}
    columns |= {name: [getattr(step, name)[row] for row in rows] for name in ROW_COLUMNS}
    columns["parents"] = [place[step.parents[node]] for node in nodes]
    accepted = [place[node] for node in takewhile(place.__contains__, step.accepted)]
    kept = len(accepted)
    bonus = step.tokens[step.accepted[kept]] if kept < len(step.accepted) else step.bonus
    emitted = step.emitted[: kept + (bonus is not None)]
    return replace(step, **columns, accepted=accepted, bonus=bonus, emitted=emitted)


def reached(step: StepTrace) -> list[int]:
    """The root and the accepted nodes: where the target's own choice counts."""
    return [ROOT, *step.accepted]


def target_choice(step: StepTrace, at: int) -> int | None:
    """The token that the answer has after a reached node; None where the answer ended."""
    path = reached(step)
    place = path.index(at)
    return step.tokens[step.accepted[place]] if place < len(step.accepted) else step.bonus


def recalled_at(step: StepTrace, at: int) -> tuple[int | None, int | None, int | None]:
    """Per order, the record that the key of a node (or the root) found; all None where it has no children."""
    return (step.recalled[at + 1] if step.recalled else None) or (None, None, None)


def is_sensitive_at(trace: RequestTrace, index: int) -> bool:
    """Is the state that chose token `index` of the answer known to be image-sensitive?"""
    sensitivity = trace.sensitivity
    return sensitivity is not None and index < len(sensitivity.kl) and is_sensitive(sensitivity, index)


# ---- the rules ---------------------------------------------------------------------------------------------------


def _drafted(lane: LaneTrace) -> Iterator[tuple[int, StepTrace]]:
    yield from ((number, step) for number, step in enumerate(lane.steps) if step.tokens)


def beginning(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The first step."""
    return Moment(trace, lane, 0)


def most_given(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The step that gave most tokens; of several, the one with the smallest tree."""
    number, step = max(_drafted(lane), key=lambda item: (len(item[1].emitted), -len(item[1].tokens)))
    return Moment(trace, lane, number, tuple(step.accepted))


LINE = 7  # guesses of a line that fits beside the text


def longest_line(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The first line that came true furthest without coming true to its end, so that all outcomes are seen.

    The moment's lane has the beginnings of first lines instead of trees.
    """

    def fit(item: tuple[int, StepTrace]) -> tuple[bool, int, int]:
        drafted, accepted = len(item[1].tokens), len(item[1].accepted)
        return accepted < drafted - 1, accepted, -drafted

    lines = replace(lane, steps=[only(step, first_line(step)[:LINE]) for step in lane.steps])
    number, _ = max(_drafted(lines), key=fit)
    return Moment(trace, lines, number)


def surest_mistake(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The rejected guess that had the largest probability among its siblings."""
    _, number, node = max(
        (step.fused[node] * (decision == "rejected"), number, node)
        for number, step in _drafted(lane)
        for node, decision in enumerate(step.decisions)
    )
    return Moment(trace, lane, number, (node,))


def tree_beats_line(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The step where the tree was accepted furthest beyond its first line; points at what the line lacked."""
    number, step = max(
        _drafted(lane),
        key=lambda item: (len(item[1].accepted) - accepted_of_line(item[1]), len(item[1].accepted)),
    )
    return Moment(trace, lane, number, tuple(step.accepted[accepted_of_line(step) :]))


HANDY = 9  # nodes of a tree whose mask is easily read


def handy_tree(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The first tree whose best nodes fork twice and were accepted at least two deep; points at the accepted path.

    The moment's lane has trees of the best HANDY nodes: as trees grow best-first, those that a budget of HANDY gives.
    """

    def fit(item: tuple[int, StepTrace]) -> tuple[int, int, int]:
        number, step = item
        forks = sum(several > 1 for several in Counter(step.parents).values())
        return min(2, len(step.accepted)), min(2, forks), -number

    small = replace(lane, steps=[only(step, range(min(HANDY, len(step.tokens)))) for step in lane.steps])
    number, step = max(_drafted(small), key=fit)
    return Moment(trace, small, number, tuple(step.accepted))


def most_recycled(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The step that accepted most; points at what hangs on the root, which is the row of the last token."""
    moment = most_given(trace, lane)
    return Moment(
        trace, lane, moment.number, tuple(n for n, parent in enumerate(moment.step.parents) if parent == ROOT)
    )


def misled(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """A best guess of a one-token record that was rejected, if possible from another picture and at a sensitive state.

    Of several, the surest one.
    """
    best: tuple[tuple[bool, bool, bool, float], int, int] | None = None
    for number, step in _drafted(lane):
        for place, at in enumerate(reached(step)):
            record, node = recalled_at(step, at)[0], first_child(step, at)
            if record is None or node is None:
                continue
            wrong = step.decisions[node] == "rejected"
            sensitive = is_sensitive_at(trace, step.root_position + 1 + place)
            fit = (wrong, lane.is_other_picture(record), sensitive, step.fused[node]), number, node
            best = fit if best is None or fit > best else best
    return Moment(trace, lane, best[1], (best[2],)) if best else most_given(trace, lane)


def longer_key_right(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """An accepted guess that a longer key's record has on top while the one-token record is sure of something else."""

    def fit(step: StepTrace, at: int, node: int) -> tuple[bool, bool, bool, float]:
        recalled = recalled_at(step, at)
        tops = [None if r is None else lane.records.tokens[r][0] for r in recalled]
        right = tops[1] == step.tokens[node] or tops[2] == step.tokens[node]
        misses = tops[0] is not None and tops[0] != step.tokens[node]
        sure = 0.0 if recalled[0] is None else lane.records.probabilities[recalled[0]][0]
        return right and misses, right, tops[2] == step.tokens[node], sure

    return _best_accepted(trace, lane, fit)


def orders_weighed(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """An accepted guess for which records of most different confidence were weighed."""

    def fit(step: StepTrace, at: int, node: int) -> tuple[bool, float, int]:
        found = {record for record in recalled_at(step, at) if record is not None}
        confidences = [lane.records.probabilities[r][0] * (1 - lane.records.entropy[r]) for r in found]
        return len(found) > 1, max(confidences, default=0.0) - min(confidences, default=0.0), step.agree[node]

    return _best_accepted(trace, lane, fit)


def _best_accepted(trace: RequestTrace, lane: LaneTrace, fit: Callable[[StepTrace, int, int], tuple]) -> Moment:
    """The accepted node for which `fit` (of its step, parent and itself) is largest."""
    _, number, node = max(
        (fit(step, step.parents[node], node), number, node) for number, step in _drafted(lane) for node in step.accepted
    )
    return Moment(trace, lane, number, (node,))


def largest_tree(trace: RequestTrace, lane: LaneTrace) -> Moment:
    """The largest tree; points at its least probable node, the last one that seemed worth its cost."""
    number, step = max(_drafted(lane), key=lambda item: len(item[1].tokens))
    return Moment(trace, lane, number, (min(range(len(step.tokens)), key=step.path.__getitem__),))
