"""What a step leaves in its trace: one column entry per node of the tree it verified.

This runs after the step's clock has stopped, so that a recorded run reports the times of an unrecorded one.
"""

from recap_engine.memory import Recalled
from recap_engine.target import Reading
from recap_engine.trace import StepTrace, Written
from recap_engine.tree import ROOT, CandidateTree
from recap_engine.weighting import shares


def record_nodes(step: StepTrace, tree: CandidateTree, reading: Reading, accepted: list[int]) -> None:
    """Fill the node columns of `step`."""
    step.parents, step.depths, step.tokens = tree.parents, tree.depths, tree.tokens
    step.fused, step.path = tree.fused, tree.path
    origins = list(zip(tree.proposals, tree.tokens, strict=True))
    step.shares = [shares(proposal, token) for proposal, token in origins]
    step.orders = [_largest(three) for three in step.shares]
    step.written = [_provenance(proposal.recalled, token) for proposal, token in origins]
    step.agree = [3 - written.count(None) for written in step.written]
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
    most = max(shares)
    return max(order for order, share in enumerate(shares, start=1) if share == most) if most else 1


def _provenance(recalled: Recalled, token: int) -> tuple[Written | None, Written | None, Written | None]:
    """Per order, when the record was written that proposed `token`; None where it didn't."""
    one, two, three = recalled
    return (
        one.written if one is not None and token in one.tokens else None,
        two.written if two is not None and token in two.tokens else None,
        three.written if three is not None and token in three.tokens else None,
    )
