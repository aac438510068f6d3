"""Budgets for Token Recycling, found on questions that nothing is measured on."""

import math
from collections.abc import Iterable
from dataclasses import replace

from recap_engine.engine import Engine
from recap_engine.request import Request
from recap_engine.settings import Settings

TR_BUDGETS = (2, 4, 8, 16, 32, 56, 80)
WARMING = 16  # nodes with which its memory serves the earlier requests


def mean_nodes(
    engine: Engine, earlier: Iterable[Request], requests: Iterable[Request], settings: Settings, cold: bool
) -> int:
    """Nodes in RECAP's mean tree, rounded: the budget at which Token Recycling proposes as much."""
    own = _after(earlier, engine, "recap", settings)
    sizes = []
    for request in requests:
        if cold:
            own.clear_memories()
        trace = own.answer(request, "recap", replace(settings, record=True))
        sizes += [len(step.tokens) for step in trace.steps]
    return max(1, round(sum(sizes) / max(len(sizes), 1)))


def best_nodes(
    engine: Engine, earlier: Iterable[Request], requests: Iterable[Request], settings: Settings, cold: bool
) -> int:
    """The budget with the least geometric mean of decoding times; budgets take turns, so a slow moment hits all."""
    warm = _after(earlier, engine, "tr", replace(settings, budget=WARMING)).memories
    engines = {b: engine.apart({name: memory.copy() for name, memory in warm.items()}) for b in TR_BUDGETS}
    logs = dict.fromkeys(TR_BUDGETS, 0.0)
    for request in requests:
        for budget, own in engines.items():
            if cold:
                own.clear_memories()
            trace = own.answer(request, "tr", replace(settings, budget=budget, record=False))
            logs[budget] += math.log(trace.seed_s + trace.decode_s)
    return min(TR_BUDGETS, key=logs.__getitem__)


def _after(earlier: Iterable[Request], engine: Engine, lane: str, settings: Settings) -> Engine:
    """The engine with memories of its own that have served these requests."""
    own = engine.apart()
    for request in earlier:
        own.answer(request, lane, settings)
    return own


FINDERS = {"tr-best": best_nodes, "tr-same": mean_nodes}  # by the lane that takes the budget
