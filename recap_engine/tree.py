"""The candidate tree: guessed continuations of the last committed token, verified together in one pass.

Row 0 of a pass is the root (the last committed token), row 1 + i is node i. A row may look at the committed tokens, at
itself and at its own ancestors, so every path is scored as if it stood alone:

    root ─┬─ 0 a ─┬─ 1 c             root  a  c  d  b
          │       └─ 2 d       root    1   .  .  .  .
          └─ 3 b                  a    1   1  .  .  .
                                  c    1   1  1  .  .
                                  d    1   1  .  1  .
                                  b    1   .  .  .  1
"""

import heapq
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from recap_engine.memory import Recalled
    from recap_engine.stepcost import StepCost

ROOT = -1
Context = tuple[int, int, int]  # the last three tokens up to and with a position: its three-token key


class Proposal(NamedTuple):
    """Candidates for one position, and what they were fused from."""

    candidates: list[tuple[int, float]]  # token and fused probability, best first
    recalled: "Recalled"  # the records of orders 1, 2, 3
    weights: tuple[float, float, float]  # of those records; they sum to 1, or to 0 if there are none


class CandidateTree:
    """Columns with one entry per node, parents before children. No two children of a node share a token."""

    def __init__(self, context: Context) -> None:
        self.context = context  # of the root
        self.tokens: list[int] = []
        self.parents: list[int] = []  # ROOT or an earlier node
        self.depths: list[int] = []  # 1 for a child of the root
        self.contexts: list[Context] = []  # a node's key is its own path, reaching back into committed tokens
        self.fused: list[float] = []  # probability among the siblings
        self.path: list[float] = []  # product of `fused` from the root down
        self.proposals: list[Proposal] = []  # what a node was taken from; siblings share it

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, fused: float, proposal: Proposal) -> int:
        """Hang `token` under `parent`; returns the new node."""
        if parent == ROOT:
            depth, above, (_, before, last) = 0, 1.0, self.context
        else:
            depth, above, (_, before, last) = self.depths[parent], self.path[parent], self.contexts[parent]
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(depth + 1)
        self.contexts.append((before, last, token))
        self.fused.append(fused)
        self.path.append(above * fused)
        self.proposals.append(proposal)
        return len(self.tokens) - 1

    def context_of(self, node: int) -> Context:
        return self.context if node == ROOT else self.contexts[node]

    def cut(self, size: int) -> None:
        """Keep the first `size` nodes; as parents come before children, they are a tree."""
        for column in vars(self).values():
            if isinstance(column, list):
                del column[size:]

    def accept(self, argmax: list[int]) -> list[int]:
        """The accepted path: from the root, the child that equals the target's argmax, while there is one.

        `argmax` has one token per row, [1 + nodes]. One sweep is enough because parents come before children.
        """
        accepted: list[int] = []
        at, wanted = ROOT, argmax[0]
        for node, parent in enumerate(self.parents):
            if parent == at and self.tokens[node] == wanted:
                accepted.append(node)
                at, wanted = node, argmax[node + 1]
        return accepted

    def mask(self, hidden: float) -> np.ndarray:
        """Additive attention mask among the rows, float32 [1 + nodes, 1 + nodes]: 0 is visible, `hidden` is not."""
        size = 1 + len(self)
        mask = np.full((size, size), hidden, dtype=np.float32)
        mask[0, 0] = 0.0
        for row, parent in enumerate(self.parents, start=1):
            mask[row, :row] = mask[parent + 1, :row]  # what the parent sees, and itself
            mask[row, row] = 0.0
        return mask


def grow(
    context: Context,
    propose: Callable[[Context], Proposal],
    cost: "StepCost",
    max_depth: int,
    floor: float,
    stops: Container[int],
    trust: float = 1.0,
) -> CandidateTree:
    """Best-first growth: always add the candidate with the largest path probability, while it is worth its cost.

    A node is accepted with its path probability times `trust`, so 1 + the sum of these is the expected number of tokens
    of the step. Candidates arrive in falling order, and the kept size is the one with the most expected tokens per
    second under `cost`. Nothing is added below `floor`, deeper than `max_depth`, or under a token of `stops` (an
    answer ends there).
    """
    tree = CandidateTree(context)
    seconds, slopes, most_nodes = cost.seconds, cost.slopes, cost.most_nodes
    size, expected, best_size, best_rate = 0, 1.0, 0, 1.0 / seconds[0]
    heap: list[tuple[float, int, int, Proposal, int]] = []  # -path, tie-break, parent, proposal, index into it

    def open_up(node: int, above: float, context: Context) -> None:
        """Only the best child that is not yet in the tree waits in the heap."""
        proposal = propose(context)
        if proposal.candidates and (path := above * proposal.candidates[0][1]) >= floor:
            heapq.heappush(heap, (-path, size * 2, node, proposal, 0))

    if max_depth > 0:
        open_up(ROOT, 1.0, context)
    while heap and size < most_nodes:
        path, _, parent, proposal, index = heap[0]
        if -path * trust <= best_rate * slopes[size]:
            break
        token, fused = proposal.candidates[index]
        node = tree.add(parent, token, fused, proposal)
        size += 1
        expected -= path * trust
        rate = expected / seconds[size]
        if rate > best_rate:
            best_size, best_rate = size, rate
        index += 1  # the next sibling takes its place
        above = 1.0 if parent == ROOT else tree.path[parent]
        if index < len(proposal.candidates) and (next_path := above * proposal.candidates[index][1]) >= floor:
            heapq.heapreplace(heap, (-next_path, size * 2 + 1, parent, proposal, index))
        else:
            heapq.heappop(heap)
        if tree.depths[node] < max_depth and token not in stops:
            open_up(node, -path, tree.contexts[node])
    tree.cut(best_size)
    return tree
