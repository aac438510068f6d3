"""RECAP (Zhu et al., arXiv 2611.05894): the last one, two and three tokens recall what the target said after them.

From the root, the records of all three orders are fused into one ranked list, and the tree grows best-first; a node's
own key is made of its own ancestors, so contextual memory serves deep nodes too. After verification every verified
position, accepted or rejected, leaves a record under its three keys. The one-token memory persists across requests, and
a new record is blended with the one that its key holds; the longer keys live in a memory made for this request and gone
after it, so they never mix what was seen under other images, and there the latest record wins.
"""

from collections.abc import Container, Iterable

from recap_engine.blending import blend_into, put
from recap_engine.decoders.base import Decoder
from recap_engine.memory import Record, RequestMemory, Table, TokenMemory, prompt_records, verified_records
from recap_engine.settings import Settings
from recap_engine.stepcost import StepCost
from recap_engine.target import Prefill, Reading, Reads
from recap_engine.tree import CandidateTree, Context, Proposal, grow
from recap_engine.weighting import WEIGHTINGS, fuse


class Recap(Decoder):
    """The method this project shows."""

    name = "recap"

    def __init__(
        self, memory: TokenMemory, cost: StepCost, settings: Settings, stops: Container[int], picture: str | None = None
    ) -> None:
        """`memory` is shared by all requests; `cost` sets how large a tree may grow (see `tree.grow`).

        `picture` is the SHA-256 of the request's picture.
        """
        self.token_memory: TokenMemory = memory
        self.longer: RequestMemory | TokenMemory = RequestMemory()  # holds orders 2 and 3
        self.cost = cost
        self.most_nodes = cost.most_nodes
        self.weigh = WEIGHTINGS[settings.weighting]
        self.max_depth = settings.max_depth
        self.floor = settings.floor
        self.stops = stops
        self.reads = Reads(top_k=settings.top_k, probabilities=True, entropy=True)
        self.request = memory.begin(picture)

    def draft(self, context: Context, max_depth: int) -> CandidateTree:
        depth = min(max_depth, self.max_depth)
        trust = self.token_memory.promises.ratio
        return grow(context, self.propose, self.cost, depth, self.floor, self.stops, trust)

    def propose(self, context: Context) -> Proposal:
        """Recall the three orders for one position and fuse them."""
        one = self.token_memory.rows.get(context[2])
        two = self.longer.pairs.get(context[1:])
        three = self.longer.triples.get(context)
        return fuse((one, two, three), self.weigh)

    def seed(self, prefill: Prefill, reading: Reading) -> None:
        self.remember(prompt_records(prefill.tokens, prefill.text_positions, reading, self.request))

    def update(self, tree: CandidateTree, reading: Reading, accepted: list[int], step: int) -> None:
        self.remember(verified_records(tree, reading, accepted, self.request, step))
        self.token_memory.promises.add(sum(tree.path), len(accepted))

    def remember(self, found: Iterable[tuple[Context, Record]]) -> None:
        """Each record under its three keys."""
        one: Table = {}
        put(found, one, self.longer.pairs, self.longer.triples)
        blend_into((self.token_memory.rows, one))

    def end(self) -> None:
        self.longer = RequestMemory()

    def sizes(self) -> dict[str, int]:
        return {
            "order1": len(self.token_memory.rows),
            "order2": len(self.longer.pairs),
            "order3": len(self.longer.triples),
        }
