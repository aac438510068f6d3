"""What a pass over n nodes costs, and so how large a candidate tree pays.

A pass is not free: on two CPU cores 80 nodes can take three times as long as one token, on a large GPU hardly longer.
Attention makes it dearer as the context grows, for a large tree more so than for one token. The curve is measured once
per loaded model (its device and dtype included), with a short context and with a long one, and `tree.grow` weighs it
against the candidates' own path probabilities.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from recap_engine.tree import CandidateTree, Proposal

if TYPE_CHECKING:
    from recap_engine.target import Target

SIZES = (0, 1, 2, 4, 8, 16, 24, 32, 48, 64)  # nodes; costs between them are interpolated
CONTEXT = 128  # committed tokens of the short context
LONG = 1024  # of the long one, if the model has so many positions
LONG_SIZES = (0, 16, 64)  # what attention adds is nearly a straight line
SECONDS = 8.0  # the measurement stops repeating after this long, and trees of over FEW nodes after half of it
FEW = 16  # nodes: what trees have where a pass is so slow that this matters
REPEATS = 15
NODE_OVERHEAD_S = 40e-6  # drafting and remembering one node, in Python on one core: RECAP takes 25 µs, RECAP+ 50

Samples = dict[int, list[float]]  # by nodes, seconds of a pass in round after round; no list is longer than that of 0


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step over the root and n nodes, never falling with n."""

    seconds: tuple[float, ...]  # [most_nodes + 1], with CONTEXT committed tokens
    per_token: tuple[float, ...] = ()  # [most_nodes + 1], what each further one adds; empty if it was not measured

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

    def at(self, context: int) -> "StepCost":
        """The cost with `context` committed tokens: on the line through both measured ones, at least CONTEXT's."""
        further = context - CONTEXT
        if further <= 0 or not self.per_token:
            return self
        return StepCost(tuple(s + further * more for s, more in zip(self.seconds, self.per_token, strict=True)))

    @classmethod
    def free(cls, nodes: int) -> "StepCost":
        """As if up to `nodes` nodes cost nothing and more were impossible: a fixed budget."""
        return cls((1.0,) * (nodes + 1))

    @classmethod
    def from_samples(cls, short: Samples, long: Samples | None = None, further: int = 1) -> "StepCost":
        """From passes with CONTEXT committed tokens and, if there are any, some with `further` more in the same rounds.

        What counts is how much longer a pass takes than one without nodes in the short context. Other work on the
        machine slows whole rounds, so the median of the rounds' ratios to that pass is steadier than any time. Sizes
        between are interpolated, nothing falls as nodes are added, and the Python work per node is added.
        """
        alone = short[0]
        unit, nodes = median(alone), range(max(short) + 1)
        ratios = {size: median(s / one for s, one in zip(short[size], alone)) for size in sorted(short)}
        seconds = unit * _rising(ratios, nodes) + NODE_OVERHEAD_S * np.arange(len(nodes))
        if not long:
            return cls(tuple(seconds.tolist()))
        more = {
            size: median((far - near) / one for far, near, one in zip(long[size], short[size], alone))
            for size in sorted(long)
        }
        per_token = unit / further * _rising(more, nodes).clip(min=0.0)
        return cls(tuple(seconds.tolist()), tuple(per_token.tolist()))


def _rising(points: dict[int, float], nodes: range) -> np.ndarray:
    """[nodes], interpolated between points that are sorted and first lifted to the largest so far."""
    return np.interp(nodes, list(points), np.maximum.accumulate(list(points.values())))


def measure(target: "Target") -> StepCost:
    """Time passes of every size in both contexts, in turns so that a slow moment hits all alike.

    The long context is the short one and rows of zeros: what they hold doesn't matter to the clock.
    """
    import torch  # only needed here

    from recap_engine.target import Reads

    trees = {size: comb(size) for size in SIZES}
    reads = Reads(top_k=8, probabilities=True, entropy=True)
    longest = min(LONG, target.max_position - max(trees[SIZES[-1]].depths))
    with torch.inference_mode():
        prefill = target.prefill({"input_ids": torch.zeros(1, CONTEXT, dtype=torch.long)})
        further = longest - CONTEXT if longest >= 2 * CONTEXT else 0
        buffer = target.open(prefill, new_tokens=max(1, further), most_nodes=SIZES[-1])
        for stack in buffer.stacks:
            stack[..., CONTEXT:, :] = 0.0

        def pass_s(size: int, length: int) -> float:
            buffer.length = length
            start = time.perf_counter()
            target.verify(buffer, trees[size], reads)
            return time.perf_counter() - start

        short: Samples = {size: [] for size in SIZES}
        long: Samples = {size: [] for size in LONG_SIZES} if further else {}
        for size in (SIZES[-1], 0):  # warm-up
            pass_s(size, CONTEXT)
        start = time.perf_counter()
        for repeat in range(REPEATS):
            few = repeat > 1 and time.perf_counter() > start + SECONDS / 2
            for size in SIZES[: SIZES.index(FEW) + 1] if few else SIZES:
                pass_s(size, CONTEXT)  # untimed: in decoding, too, a pass follows one of about its size
                short[size].append(pass_s(size, CONTEXT))
                if size in long:
                    long[size].append(pass_s(size, CONTEXT + further))
            if repeat and time.perf_counter() > start + SECONDS:
                break
    return StepCost.from_samples(short, long, further)


def comb(size: int) -> CandidateTree:
    """A tree of `size` nodes, four to a level; which tokens it holds doesn't matter to the clock."""
    tree = CandidateTree((0, 0, 0))
    proposal = Proposal([], (None, None, None), (1.0, 0.0, 0.0))
    for node in range(size):
        tree.add(node // 4 * 4 - 1 if node >= 4 else -1, node % 4, 0.5, proposal)
    return tree
