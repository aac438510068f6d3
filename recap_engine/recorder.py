"""What a step leaves in its trace: one column entry per node of the tree it verified.

This runs after the step's clock has stopped, so that a recorded run reports the times of an unrecorded one.
"""

from recap_engine.memory import Recalled
from recap_engine.target import Reading
from recap_engine.trace import StepTrace, Written
from recap_engine.tree import ROOT, CandidateTree, Shares


def record_nodes(step: StepTrace, tree: CandidateTree, reading: Reading, accepted: list[int]) -> None:
    """Fill the node columns of `step`."""
    step.parents, step.depths, step.tokens = tree.parents, tree.depths, tree.tokens
    step.fused, step.path, step.shares = tree.fused, tree.path, tree.shares
    step.orders = [_largest_share(shares) for shares in tree.shares]
    step.written = [_provenance(token, recalled) for token, recalled in zip(tree.tokens, tree.recalled, strict=True)]
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


def _largest_share(shares: Shares) -> int:
    """The order, 1 to 3, that gave the most; of equal ones the longer."""
    one, two, three = shares
    return 3 if three >= two and three >= one and three > 0 else 2 if two >= one and two > 0 else 1


def _provenance(token: int, recalled: Recalled) -> tuple[Written | None, Written | None, Written | None]:
    """Per order, when the record was written that proposed `token`; None where it didn't."""
    one, two, three = recalled
    return (
        one.written if one is not None and token in one.tokens else None,
        two.written if two is not None and token in two.tokens else None,
        three.written if three is not None and token in three.tokens else None,
    )
