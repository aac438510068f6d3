"""Budgets for Token Recycling, found on questions that nothing is measured on.

Finding one takes minutes, so the functions tell after every run which budget it would be so far: 0 while nothing does.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from recap_engine.engine import Engine
from recap_engine.request import Request
from recap_engine.settings import Settings

TR_BUDGETS = (2, 4, 8, 16, 32, 56, 80)
WARM_BUDGET = 16  # nodes with which its memory serves the earlier requests


def mean_nodes(
    engine: Engine, earlier: Iterable[Request], requests: Iterable[Request], settings: Settings, cold: bool
) -> Iterator[int]:
    """Nodes in RECAP's mean tree, rounded: the budget at which Token Recycling proposes as much."""
    own = yield from _after(earlier, engine, "recap", settings)
    sizes = []
    for request in requests:
        if cold:
            own.clear_memories()
        trace = own.answer(request, "recap", replace(settings, record=True))
        sizes += [len(step.tokens) for step in trace.steps]
        yield max(1, round(sum(sizes) / max(len(sizes), 1)))


def best_nodes(
    engine: Engine, earlier: Iterable[Request], requests: Iterable[Request], settings: Settings, cold: bool
) -> Iterator[int]:
    """The budget with the least geometric mean of decoding times; budgets take turns, so a slow moment hits all."""
    warm = yield from _after(earlier, engine, "tr", replace(settings, budget=WARM_BUDGET))
    engines = {b: engine.apart({name: m.copy() for name, m in warm.memories.items()}) for b in TR_BUDGETS}
    logs = dict.fromkeys(TR_BUDGETS, 0.0)
    for request in requests:
        for budget, own in engines.items():
            if cold:
                own.clear_memories()
            trace = own.answer(request, "tr", replace(settings, budget=budget, record=False))
            logs[budget] += math.log(trace.seed_s + trace.decode_s)
            yield min(TR_BUDGETS, key=logs.__getitem__)


def _after(earlier: Iterable[Request], engine: Engine, lane: str, settings: Settings) -> Generator[int, None, Engine]:
    """The engine with memories of its own that have served these requests."""
    own = engine.apart()
    for request in earlier:
        own.answer(request, lane, settings)
        yield 0
    return own


class Finder(NamedTuple):
    """How a lane's budget is found."""

    find: Callable[[Engine, Iterable[Request], Iterable[Request], Settings, bool], Iterator[int]]
    runs: int  # of each question that it is found on


FINDERS = {"tr-best": Finder(best_nodes, len(TR_BUDGETS)), "tr-same": Finder(mean_nodes, 1)}  # by the lane
