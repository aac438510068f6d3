"""Token Recycling (Luo et al., ACL 2025, arXiv 2408.08696): the last token alone recalls what the target said after it.

A matrix holds, for each token, the target's latest top-8 successors. From the root, a breadth-first walk on it fills a
static tree of 80 nodes in six levels; a node is a path of ranks. After verification every verified position, accepted
or rejected, overwrites its token's row. The matrix persists across requests.

The paper gives the sizes of the levels; which rank paths fill them is our choice, see `static_tree`.
"""

from collections.abc import Container
from functools import cache
from itertools import count

from recap_engine.decoders.base import Decoder
from recap_engine.memory import Record, TokenMemory, prompt_records, verified_records
from recap_engine.settings import Settings
from recap_engine.target import Prefill, Reading, Reads
from recap_engine.tree import ROOT, CandidateTree, Context, Proposal

TOP_K = 8
LEVELS = (8, 21, 25, 15, 8, 3)
STATIC_NODES = sum(LEVELS)  # 80
UNRANKED = 0.0  # what the tree holds for a node's probability: this method doesn't ask for it
RANK_PROMISE = [0.5 / (rank + 1) ** 1.5 for rank in range(TOP_K)]


@cache
def static_tree(nodes: int = STATIC_NODES) -> tuple[tuple[int, int], ...]:
    """The tree as (parent, rank) pairs, breadth-first; `nodes` < 80 keeps the most promising ones.

    A rank path's promise is the product of 0.5 / (rank + 1)^1.5 along it. Each level keeps its most promising paths, so
    better-ranked parents get more children. A cut keeps the most promising of all nodes; a parent always outranks its
    children, so they are a tree.
    """
    level: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
    promising: list[tuple[float, tuple[int, ...]]] = []  # promise, rank path
    for size in LEVELS:
        children = [(promise * RANK_PROMISE[rank], (*path, rank)) for promise, path in level for rank in range(TOP_K)]
        level = sorted(children, key=lambda child: (-child[0], child[1]))[:size]
        promising += level
    kept = sorted(promising, key=lambda node: -node[0])[:nodes]
    paths = sorted((path for _, path in kept), key=lambda path: (len(path), path))
    number = {(): ROOT, **dict(zip(paths, count(), strict=False))}
    return tuple((number[path[:-1]], path[-1]) for path in paths)


class TokenRecycling(Decoder):
    """The baseline RECAP builds on."""

    name = "tr"
    reads = Reads(TOP_K)

    def __init__(
        self, memory: TokenMemory, settings: Settings, stops: Container[int], picture: str | None = None
    ) -> None:
        """`memory` is the matrix, shared by all requests; `picture` is the SHA-256 of the request's picture."""
        self.token_memory: TokenMemory = memory
        self.shape = static_tree(STATIC_NODES if settings.budget == "auto" else min(settings.budget, STATIC_NODES))
        self.most_nodes = len(self.shape)
        self.stops = stops
        self.request = memory.begin(picture)

    def draft(self, context: Context, max_depth: int) -> CandidateTree:
        """Fill the static tree. A node is left out with its parent, or if the row it needs isn't written."""
        tree = CandidateTree(context)
        placed: list[int | None] = []  # per node of the static tree, its node in `tree`
        for parent, rank in self.shape:
            above = ROOT if parent == ROOT else placed[parent]
            row = None if above is None else self._row(tree, above, max_depth)
            if above is None or row is None:
                placed.append(None)
                continue
            proposal = Proposal([], (row, None, None), (1.0, 0.0, 0.0))
            placed.append(tree.add(above, row.tokens[rank], UNRANKED, proposal))
        return tree

    def _row(self, tree: CandidateTree, node: int, max_depth: int) -> Record | None:
        """The successors of a node's token, unless the answer ends at it or the tree may not grow under it."""
        token = tree.context_of(node)[-1]
        depth = 0 if node == ROOT else tree.depths[node]
        if depth >= max_depth or (node != ROOT and token in self.stops):
            return None
        return self.token_memory.rows.get(token)

    def seed(self, prefill: Prefill, reading: Reading) -> None:
        for context, record in prompt_records(prefill.tokens, prefill.text_positions, reading, self.request):
            self.token_memory.rows[context[-1]] = record

    def update(self, tree: CandidateTree, reading: Reading, accepted: list[int], step: int) -> None:
        for context, record in verified_records(tree, reading, accepted, self.request, step):
            self.token_memory.rows[context[-1]] = record

    def sizes(self) -> dict[str, int]:
        return {"order1": len(self.token_memory.rows), "order2": 0, "order3": 0}
