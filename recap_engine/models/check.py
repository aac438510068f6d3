"""A trial of whether a model takes candidate trees: a tree's rows must say what plain passes over its paths say.

The listed families are covered by tests. Any other causal model is tried when it is loaded, because some count
positions or hide tokens (ALiBi, for one) in ways that no mask reaches and no configuration tells.
"""

import torch

from recap_engine.errors import RecapError
from recap_engine.target import Reads, Target
from recap_engine.tree import ROOT, CandidateTree, Proposal

PROMPT = [5, 9, 7, 11, 6, 8]
PATHS = ([12, 3, 14, 4], [12, 10, 13])  # from the root on; any tokens do
NOTHING = Proposal([], (None, None, None), (0.0, 0.0, 0.0))
READS = Reads(top_k=1, probabilities=True)
TOLERANCE = {torch.float32: 0.01}  # most that the best token's probability may change, over itself
HALF_TOLERANCE = 0.25  # rounding alone changes it by some per cent


def check_tree(target: Target) -> None:
    """Raises RecapError unless every row of a small tree predicts what it does when its path is read alone."""
    tree = CandidateTree((PROMPT[-2], PROMPT[-1], PATHS[0][0]))
    rows = []  # of each path, in the tree's pass
    for path in PATHS:
        node = ROOT
        rows.append([0, *[1 + (node := tree.add(node, token, 1.0, NOTHING)) for token in path[1:]]])
    tolerance = TOLERANCE.get(target.model.dtype, HALF_TOLERANCE)
    try:
        prefill = target.prefill({"input_ids": torch.tensor([PROMPT])})
        together = target.verify(target.open(prefill, len(tree), len(tree)), tree, READS).probabilities
        for path, own in zip(PATHS, rows, strict=True):
            alone = target.read_prompt(target.prefill({"input_ids": torch.tensor([PROMPT + path])}), READS)
            for row, (expected,) in zip(own, alone.probabilities[-len(path) :], strict=True):
                if abs(together[row][0] - expected) > tolerance * expected:
                    raise RecapError("This model's attention mixes the paths of a candidate tree, so it is not taken.")
    except torch.OutOfMemoryError as error:
        raise RecapError("The device's memory is full: choose a smaller model.") from error
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise RecapError("This kind of model cannot verify a tree of candidates in one pass.") from error
