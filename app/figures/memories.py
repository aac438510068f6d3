"""What the memories hold and find, and how often what they propose is accepted: all drafting lanes together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from app.figures.base import styled
from app.marks import DRAFTING, LANES, ORDER_COLOURS, SOURCES
from recap_engine.trace import LOCAL, PERSISTENT, LaneTrace, RequestTrace, StepTrace

SOURCE_TICKS = {order: f"{order}-gram" for order in ORDER_COLOURS}
LEGEND_ROW_PX = 20
DASHES = {"recap": "solid", "recap+": "dot", "tr": "dash"}


@dataclass(frozen=True)
class Tally:
    """How many of the candidates of one kind were accepted."""

    accepted: int
    proposed: int

    @property
    def rate(self) -> float:
        return self.accepted / self.proposed if self.proposed else 0.0


def drafting(trace: RequestTrace) -> list[LaneTrace]:
    """The lanes that draft from memories, RECAP first."""
    return [trace.lanes[name] for name in DRAFTING if name in trace.lanes]


def tallies(lane: LaneTrace, kind: Callable[[StepTrace, int], Any]) -> dict[Any, Tally]:
    """Accepted and proposed candidates by whatever `kind(step, node)` says they are."""
    proposed: Counter[Any] = Counter()
    accepted: Counter[Any] = Counter()
    for step in lane.steps:
        kinds = [kind(step, node) for node in range(len(step.tokens))]
        proposed.update(kinds)
        accepted.update(kinds[node] for node in step.accepted)
    return {key: Tally(accepted[key], proposed[key]) for key in sorted(proposed)}


def by_order(lane: LaneTrace) -> dict[int, Tally]:
    """By the order with the largest share."""
    return tallies(lane, lambda step, node: step.orders[node])


def by_scope(lane: LaneTrace) -> dict[str, Tally]:
    return tallies(lane, lambda step, node: lane.scopes[step.orders[node]])


def by_depth(lane: LaneTrace) -> dict[int, Tally]:
    return tallies(lane, lambda step, node: step.depths[node])


def lookups(step: StepTrace, order: int) -> tuple[int, int]:
    """How many keys of an order found a record in one step, and how many rows of the tree were looked up at all."""
    found = [recalled[order - 1] is not None for recalled in step.recalled if recalled is not None]
    return sum(found), len(found)


def _lines(
    trace: RequestTrace, value: Callable[[LaneTrace, int], Iterable[float]], hover: str, **yaxis: Any
) -> go.Figure:
    """One line per memory over the steps, in the colours of their order; Token Recycling's in its lane's."""
    traces = []
    for lane in drafting(trace):
        for order, source in SOURCES[lane.name].items():
            name = f"{LANES[lane.name].short} {source.name}"
            colour = LANES["tr"].colour if lane.name == "tr" else source.colour
            traces.append(
                dict(
                    x=list(range(1, lane.n_steps + 1)),
                    y=list(value(lane, order)),
                    mode="lines",
                    name=name,
                    line=dict(color=colour, width=2.4, dash=DASHES[lane.name]),
                    hovertemplate=f"{name}<br>{hover} at step %{{x}}<extra></extra>",
                )
            )
    return styled(
        traces,
        height=300 + LEGEND_ROW_PX * max(0, len(traces) - 4),  # on a narrow page a name is a row of the legend
        xaxis=dict(title="step", rangemode="tozero"),
        yaxis=yaxis,
    )


def sizes_figure(trace: RequestTrace) -> go.Figure:
    """How many keys of each memory hold a record, over the steps. The persistent ones start as they were left."""

    def keys(lane: LaneTrace, order: int) -> Iterable[float]:
        return [step.memory.get(f"order{order}", 0) for step in lane.steps]

    return _lines(trace, keys, "%{y} keys", title="keys with a record", rangemode="tozero")


def hits_figure(trace: RequestTrace) -> go.Figure:
    """Which part of the lookups had found a record by each step. Rows from which nothing was drafted don't count."""

    def rates(lane: LaneTrace, order: int) -> Iterable[float]:
        counts = [lookups(step, order) for step in lane.steps]
        sums = zip(accumulate(found for found, _ in counts), accumulate(tried for _, tried in counts), strict=True)
        return [found / tried if tried else 0.0 for found, tried in sums]

    hover = "%{y:.1%} found a record"
    return _lines(trace, rates, hover, title="keys that had a record", tickformat=".0%", range=[0, 1.03])


def _bars(lane: LaneTrace, xs: Any, counts: list[Tally], labelled: bool = False) -> dict[str, Any]:
    mark = LANES[lane.name]
    return dict(
        x=xs,
        y=[count.rate for count in counts],
        name=mark.short,
        marker=dict(color=mark.colour),
        text=[f"{count.rate:.0%}" if labelled and count.proposed else "" for count in counts],
        textposition="outside",
        cliponaxis=False,
        hovertext=[f"{mark.name}: {count.accepted} of {count.proposed} accepted" for count in counts],
        hoverinfo="text",
    )


def acceptance_figure(trace: RequestTrace) -> go.Figure:
    """Accepted over proposed candidates, by source and by scope of the largest share."""
    none = Tally(0, 0)
    ticks = [*SOURCE_TICKS.values(), PERSISTENT, LOCAL]
    groups = ["by source"] * 3 + ["by scope"] * 2
    traces = []
    for lane in drafting(trace):
        orders, scopes = by_order(lane), by_scope(lane)
        counts = [orders.get(order, none) for order in SOURCE_TICKS]
        counts += [scopes.get(scope, none) for scope in (PERSISTENT, LOCAL)]
        traces.append(_bars(lane, [groups, ticks], counts, labelled=True))
    return _rates(traces)


def depth_figure(trace: RequestTrace) -> go.Figure:
    """Accepted over proposed candidates, by depth in the tree."""
    traces = []
    for lane in drafting(trace):
        depths = by_depth(lane)
        traces.append(_bars(lane, list(depths), list(depths.values())))
    return _rates(traces, xaxis=dict(title="depth", dtick=1))


def _rates(traces: list[dict[str, Any]], **layout: Any) -> go.Figure:
    highest = max((rate for bars in traces for rate in bars["y"]), default=0.0)
    return styled(
        traces,
        bars=True,
        barmode="group",
        yaxis=dict(title="accepted ÷ proposed", tickformat=".0%", range=[0, 1.15 * (highest or 1.0)]),
        **layout,
    )


def accepted_figure(trace: RequestTrace) -> go.Figure:
    """How many candidates a step accepts: the part of a lane's steps for each number."""
    traces = []
    for lane in drafting(trace):
        counts = Counter(len(step.accepted) for step in lane.steps)
        xs = list(range(max(counts, default=0) + 1))
        mark = LANES[lane.name]
        traces.append(
            dict(
                x=xs,
                y=[counts[x] / max(1, lane.n_steps) for x in xs],
                name=f"{mark.short}, {lane.mat:.2f} tokens a step",
                marker=dict(color=mark.colour),
                hovertext=[f"{mark.name}: {counts[x]} of {lane.n_steps} steps accepted {x}" for x in xs],
                hoverinfo="text",
            )
        )
    return styled(
        traces,
        bars=True,
        barmode="group",
        xaxis=dict(title="candidates accepted in a step", dtick=1),
        yaxis=dict(title="part of all steps", tickformat=".0%", rangemode="tozero"),
    )


def acceptance_table(trace: RequestTrace) -> pd.DataFrame:
    """The numbers behind the figures of acceptance, one row for each lane and kind of candidate."""
    rows = []
    for lane in drafting(trace):
        kinds = {"source": by_order(lane), "scope": by_scope(lane), "depth": by_depth(lane)}
        for kind, counts in kinds.items():
            for key, count in counts.items():
                label = SOURCE_TICKS[key] if kind == "source" else str(key)
                rows.append((LANES[lane.name].short, kind, label, count.accepted, count.proposed, round(count.rate, 4)))
    return pd.DataFrame(rows, columns=["lane", "by", "value", "accepted", "proposed", "rate"])
