"""The oracle: a drafter that knows the answer. No drafter at the same depth limit and step cost is faster."""

from recap_engine.decoders import Decoder
from recap_engine.stepcost import StepCost
from recap_engine.target import Reading, Reads
from recap_engine.tree import ROOT, CandidateTree, Context, Proposal

KNOWN = Proposal([], (None, None, None), (0.0, 0.0, 0.0))


class Oracle(Decoder):
    """Drafts the answer itself, a chain without branches, as long as brings the most tokens per second."""

    name = "oracle"
    reads = Reads()  # it remembers nothing

    def __init__(self, answer: list[int], cost: StepCost, max_depth: int) -> None:
        self.answer, self.cost = answer, cost
        self.most_nodes = min(cost.most_nodes, max_depth)
        self.said = 1  # tokens of the answer so far; the prefill gave the first

    def draft(self, context: Context, max_depth: int) -> CandidateTree:
        tree = CandidateTree(context)
        ahead = self.answer[self.said :]
        sizes = range(min(len(ahead), max_depth, self.most_nodes) + 1)
        size = max(sizes, key=lambda nodes: min(nodes + 1, len(ahead)) / self.cost.seconds[nodes])
        for node, token in enumerate(ahead[:size]):
            tree.add(node - 1 if node else ROOT, token, 1.0, KNOWN)
        return tree

    def update(self, tree: CandidateTree, reading: Reading, accepted: list[int], step: int) -> None:
        self.said += len(accepted) + 1
