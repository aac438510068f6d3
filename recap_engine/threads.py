"""How many threads a model on a CPU decodes with: the fewest that are about as quick as any.

A pass of a small model is made of hundreds of short operations. More threads than they can feed gain little on an idle
machine and lose much on a busy one, where every operation waits for its slowest thread: the embedded model's passes
took four times as long on two threads as on one while both cores had other work. So the number is measured, once per
loaded model, as the page and other visitors' requests need cores too.
"""

import os
import time
from collections.abc import Callable

import torch

from recap_engine.models.packing import count_weights
from recap_engine.stepcost import comb
from recap_engine.target import Reads, Target

NODES = 8  # of the pass that is timed
REPEATS = 5
LARGE = 500_000_000  # parameters from which a model's operations are large enough to gain from every thread
WORTH = 0.8  # more threads are taken if they bring a pass under this share of its time


def fit(target: Target) -> int | None:
    """The number of threads, or None to leave it as it is: not a CPU, a large model, or OMP_NUM_THREADS is set."""
    most = torch.get_num_threads()
    large = count_weights(target.model) > LARGE
    if target.device.type != "cpu" or large or most == 1 or "OMP_NUM_THREADS" in os.environ:
        return None
    pass_s = _a_pass(target)
    try:
        pass_s(1)  # warms up
        counts = sorted({1, *(2**power for power in range(1, most.bit_length())), most})
        rounds = [[pass_s(count) for count in counts] for _ in range(REPEATS)]  # in turns: a slow moment hits all
        return fewest({count: min(seconds) for count, *seconds in zip(counts, *rounds, strict=True)})
    finally:
        torch.set_num_threads(most)


def fewest(seconds: dict[int, float]) -> int:
    """From the seconds of a pass by the number of threads, rising: the last that was worth it over the one before."""
    chosen, *others = seconds
    for count in others:
        if seconds[count] < WORTH * seconds[chosen]:
            chosen = count
    return chosen


def _a_pass(target: Target) -> Callable[[int], float]:
    """A function that runs a verification with so many threads, and returns its seconds."""
    prefill = target.prefill({"input_ids": torch.zeros(1, 64, dtype=torch.long)})
    buffer = target.open(prefill, new_tokens=1, most_nodes=NODES)
    tree = comb(NODES)

    def run(count: int) -> float:
        torch.set_num_threads(count)
        start = time.perf_counter()
        target.verify(buffer, tree, Reads())
        return time.perf_counter() - start

    return run
