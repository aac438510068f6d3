"""What a pass over n nodes costs, and so how large a candidate tree pays.

A pass is not free: on two CPU cores 80 nodes can take three times as long as one token, on a large GPU hardly longer.
The curve is measured once per loaded model (its device and dtype included), and `tree.grow` weighs it against the
candidates' own path probabilities.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import torch

from recap_engine.tree import CandidateTree, Proposal

if TYPE_CHECKING:
    from recap_engine.target import Target

SIZES = (0, 1, 2, 4, 8, 16, 24, 32, 48, 64)  # nodes; costs between them are interpolated
CONTEXT = 128  # committed tokens during the measurement
SECONDS = 2.0  # the measurement stops repeating after this long
REPEATS = 15
NODE_OVERHEAD_S = 12e-6  # drafting, walking and remembering one node, in Python on one core


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step over the root and n nodes, never falling with n."""

    seconds: tuple[float, ...]  # [most_nodes + 1]

    @property
    def most_nodes(self) -> int:
        return len(self.seconds) - 1

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """[most_nodes]: from n nodes on, the least seconds per further node, however many further nodes one takes.

        With R the best expected tokens per second so far, a further candidate that is accepted with probability p, and
        all the less probable ones behind it, can only raise R if p > R * slopes[n].
        """
        costs, end = self.seconds, len(self.seconds)
        return tuple(min((costs[m] - costs[n]) / (m - n) for m in range(n + 1, end)) for n in range(end - 1))

    @classmethod
    def free(cls, nodes: int) -> "StepCost":
        """As if up to `nodes` nodes cost nothing and more were impossible: a fixed budget."""
        return cls((1.0,) * (nodes + 1))

    @classmethod
    def from_samples(cls, samples: dict[int, list[float]]) -> "StepCost":
        """From aligned samples: each size's r-th was taken in round r. Made non-decreasing and interpolated.

        What counts is how much longer a pass with nodes takes than one without. Other work on the machine slows whole
        rounds, so the median of the rounds' ratios to their own pass without nodes is steadier than any time. The
        Python work per node is added.
        """
        alone = samples[0]
        points: list[tuple[int, float]] = []
        for size in sorted(samples):
            ratio = median(one / other for one, other in zip(samples[size], alone, strict=True))
            points.append((size, max(ratio * median(alone), points[-1][1] if points else 0.0)))
        seconds = [points[0][1]]
        for (left, low), (right, high) in pairwise(points):
            slope = (high - low) / (right - left) + NODE_OVERHEAD_S
            seconds += [seconds[-1] + slope * step for step in range(1, right - left + 1)]
        return cls(tuple(seconds))


def measure(target: "Target") -> StepCost:
    """Time passes of every size, interleaved so that a slow moment hits all alike."""
    from recap_engine.target import Reads

    prefill = target.prefill({"input_ids": torch.zeros(1, CONTEXT, dtype=torch.long)})
    buffer = target.open(prefill, new_tokens=1, most_nodes=SIZES[-1])
    reads = Reads(top_k=8, probabilities=True, entropy=True)
    samples: dict[int, list[float]] = {size: [] for size in SIZES}
    trees = {size: comb(size) for size in SIZES}
    target.verify(buffer, trees[SIZES[-1]], reads)  # warm-up
    target.verify(buffer, trees[0], reads)
    end = time.perf_counter() + SECONDS
    for repeat in range(REPEATS):
        for size in SIZES:
            start = time.perf_counter()
            target.verify(buffer, trees[size], reads)
            samples[size].append(time.perf_counter() - start)
        if time.perf_counter() > end and repeat:
            break
    return StepCost.from_samples(samples)


def comb(size: int) -> CandidateTree:
    """A tree of `size` nodes, four to a level; which tokens it holds doesn't matter to the clock."""
    tree = CandidateTree((0, 0, 0))
    proposal = Proposal([], (None, None, None), (1.0, 0.0, 0.0))
    for node in range(size):
        tree.add(node // 4 * 4 - 1 if node >= 4 else -1, node % 4, 0.5, proposal)
    return tree
