"""The oracle: a drafter that knows the answer. No drafter at the same depth limit and step cost is faster."""

from collections.abc import Sequence

from recap_engine.decoders import Decoder
from recap_engine.stepcost import StepCost
from recap_engine.target import Reading, Reads
from recap_engine.tree import ROOT, CandidateTree, Context, Proposal

KNOWN = Proposal([], (None, None, None), (0.0, 0.0, 0.0))


class Oracle(Decoder):
    """Drafts the answer itself in chains without branches, of the lengths that cost the least time in all."""

    name = "oracle"
    reads = Reads()  # it remembers nothing

    def __init__(self, answer: list[int], cost: StepCost, max_depth: int) -> None:
        self.answer = answer
        self.most_nodes = min(cost.most_nodes, max_depth)
        self.chains = best_sizes(len(answer), cost.seconds[: self.most_nodes + 1])
        self.said = 1  # tokens of the answer so far; the prefill gave the first

    def draft(self, context: Context, max_depth: int) -> CandidateTree:
        tree = CandidateTree(context)
        size = min(self.chains[max(0, len(self.answer) - self.said)], max_depth)
        for node, token in enumerate(self.answer[self.said : self.said + size]):
            tree.add(node - 1 if node else ROOT, token, 1.0, KNOWN)
        return tree

    def update(self, tree: CandidateTree, reading: Reading, accepted: list[int], step: int) -> None:
        self.said += len(accepted) + 1


def best_sizes(tokens: int, seconds: Sequence[float]) -> list[int]:
    """[tokens + 1]: how many nodes to draft while so many tokens are left, when n cost `seconds[n]`.

    A step over n nodes, all accepted, says n + 1 tokens; so the least time for what is left follows from that for less.
    """
    sizes, least = [0], [0.0]
    for left in range(1, tokens + 1):
        times = [seconds[nodes] + least[left - nodes - 1] for nodes in range(min(left, len(seconds)))]
        least.append(min(times))
        sizes.append(times.index(least[-1]))
    return sizes
