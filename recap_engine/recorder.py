"""What a step leaves in its lane's trace: the tree it verified, what was decided, and the records behind it.

This runs after the step's clock has stopped, so that a recorded run reports the times of an unrecorded one.
"""

from recap_engine.memory import Record, TokenMemory
from recap_engine.target import Reading
from recap_engine.trace import LaneTrace, StepTrace, decisions
from recap_engine.tree import ROOT, CandidateTree
from recap_engine.weighting import share


class Recorder:
    """Fills one lane's trace. Each record gets one entry in the lane's columns, however often it is recalled."""

    def __init__(self, lane: LaneTrace, memory: TokenMemory | None) -> None:
        """`memory` knows which pictures the lane's earlier requests had."""
        self.lane = lane
        self.pictures = memory.pictures if memory else {}
        self.numbers: dict[Record, int] = {}
        if memory:
            lane.pictures[lane.request] = self.pictures[lane.request]

    def add(self, step: StepTrace, tree: CandidateTree, reading: Reading, accepted: list[int]) -> None:
        """Fill the columns of `step`, and the target's margins at the tokens it emitted."""
        step.parents, step.depths, step.tokens = tree.parents, tree.depths, tree.tokens
        size = 1 + len(tree)
        step.rows = [self._number(reading.records[row]) for row in range(size)]
        step.recalled, step.weights = [None] * size, [None] * size
        for parent, token, (_, recalled, weights) in zip(tree.parents, tree.tokens, tree.proposals, strict=True):
            one, two, three = recalled
            shares = share(one, weights[0], token), share(two, weights[1], token), share(three, weights[2], token)
            step.shares.append(shares)
            step.fused.append(sum(shares))
            step.path.append(step.fused[-1] * (1.0 if parent == ROOT else step.path[parent]))
            step.orders.append(_largest(shares))
            step.agree.append(sum(record is not None and token in record.tokens for record in recalled))
            if step.recalled[parent + 1] is None:
                step.recalled[parent + 1] = self._maybe(one), self._maybe(two), self._maybe(three)
                step.weights[parent + 1] = weights
        step.decisions = decisions(tree.parents, accepted)
        step.target_probs, step.target_ranks = reading.node_probabilities, reading.node_ranks
        step.accepted = accepted
        rows = [0, *[node + 1 for node in accepted]]
        step.margins = [reading.margin(row) for row in rows[: len(step.emitted)]]

    def _maybe(self, record: Record | None) -> int | None:
        return None if record is None else self._number(record)

    def _number(self, record: Record) -> int:
        """The record's index in the lane's columns, where it is entered when first seen."""
        number = self.numbers.setdefault(record, len(self.numbers))
        columns = self.lane.records
        if number == len(columns):
            columns.tokens.append(record.tokens)
            columns.probabilities.append(record.probabilities)
            columns.entropy.append(record.entropy)
            columns.written.append(record.written)
            request = record.written[0]
            self.lane.pictures.setdefault(request, self.pictures.get(request))
        return number


def _largest(shares: tuple[float, float, float]) -> int:
    """The order, 1 to 3, that gave the most; of equal ones the longer, as its record is the more specific."""
    one, two, three = shares
    if three and three >= two and three >= one:
        return 3
    return 2 if two and two >= one else 1
