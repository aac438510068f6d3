"""What a step leaves in its trace: one column entry per node of the tree it verified.

This runs after the step's clock has stopped, so that a recorded run reports the times of an unrecorded one.
"""

from recap_engine.memory import Record
from recap_engine.target import Reading
from recap_engine.trace import StepTrace, Written
from recap_engine.tree import ROOT, CandidateTree
from recap_engine.weighting import share


def record_nodes(step: StepTrace, tree: CandidateTree, reading: Reading, accepted: list[int]) -> None:
    """Fill the node columns of `step`, and the target's margins at the tokens it emitted."""
    step.parents, step.depths, step.tokens = tree.parents, tree.depths, tree.tokens
    step.fused, step.path = tree.fused, tree.path
    for token, (_, recalled, weights) in zip(tree.tokens, tree.proposals, strict=True):
        one, two, three = recalled
        shares = share(one, weights[0], token), share(two, weights[1], token), share(three, weights[2], token)
        written = _written(one, token), _written(two, token), _written(three, token)
        step.shares.append(shares)
        step.written.append(written)
        step.orders.append(_largest(shares))
        step.agree.append(3 - written.count(None))
    step.decisions = decisions(tree, accepted)
    step.target_probs, step.target_ranks = reading.node_probabilities, reading.node_ranks
    step.accepted = accepted
    rows = [0, *[node + 1 for node in accepted]]
    step.margins = [reading.margin(row) for row in rows[: len(step.emitted)]]


def decisions(tree: CandidateTree, accepted: list[int]) -> list[str]:
    """Per node: accepted, rejected (its parent was reached, it is not the argmax) or unreached (its parent was not)."""
    kept = set(accepted)
    reached = {ROOT, *accepted}
    return [
        "accepted" if node in kept else "rejected" if parent in reached else "unreached"
        for node, parent in enumerate(tree.parents)
    ]


def _largest(shares: tuple[float, float, float]) -> int:
    """The order, 1 to 3, that gave the most; of equal ones the longer, as its record is the more specific."""
    one, two, three = shares
    if three and three >= two and three >= one:
        return 3
    return 2 if two and two >= one else 1


def _written(record: Record | None, token: int) -> Written | None:
    """When the record was written, if it proposed `token`."""
    return record.written if record and token in record.tokens else None
