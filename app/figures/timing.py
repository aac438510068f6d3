"""Where the time went: tokens against time, time by phase, and the speedup as the answer grows."""

from __future__ import annotations

from itertools import accumulate

import plotly.graph_objects as go

from app.figures.base import styled
from app.marks import LANES, NEUTRAL, PHASE_COLOURS, seconds
from recap_engine.trace import LaneTrace, RequestTrace


def token_times(lane: LaneTrace) -> tuple[list[float], list[int]]:
    """Seconds since decoding began, and the tokens there were then: one entry for the prefill's token, one a step."""
    counts = accumulate((len(step.emitted) for step in lane.steps), initial=1)
    return [0.0, *(step.ended_s for step in lane.steps)], list(counts)


def progress_figure(trace: RequestTrace) -> go.Figure:
    """New tokens against seconds since decoding began, one stair per lane, with the engine's own timestamps."""
    traces = []
    for name, lane in trace.lanes.items():
        mark = LANES[name]
        times, counts = token_times(lane)
        stair = dict(
            x=times,
            y=counts,
            mode="lines",
            name=mark.short,
            line=dict(color=mark.colour, width=2.6, shape="hv"),
            hovertemplate=f"{mark.name}<br>%{{y}} tokens after %{{x:.3f}} s<extra></extra>",
        )
        end = dict(
            x=times[-1:],
            y=counts[-1:],
            mode="markers",
            marker=dict(color=mark.colour, size=9),
            hoverinfo="skip",
            showlegend=False,
        )
        traces += [stair, end]
    most = max((lane.n_tokens for lane in trace.lanes.values()), default=0)
    return styled(
        traces,
        xaxis=dict(title="seconds since decoding began", rangemode="tozero"),
        yaxis=dict(title="new tokens", rangemode="tozero", dtick=1 if most < 9 else None),
    )


def speedup_figure(trace: RequestTrace) -> go.Figure:
    """How many times sooner than AR a lane had its first n tokens, against n. Only decoding counts, as on the cards."""
    baseline = trace.lanes.get("ar")
    at = dict(zip(*reversed(token_times(baseline)), strict=True)) if baseline else {}  # tokens -> AR's seconds
    traces = []
    for name, lane in trace.lanes.items():
        mark = LANES[name]
        points = [(n, at[n] / when) for when, n in zip(*token_times(lane)) if n in at and when > 0]
        traces.append(
            dict(
                x=[n for n, _ in points],
                y=[speedup for _, speedup in points],
                mode="lines",
                name=mark.short,
                line=dict(color=mark.colour, width=2.6),
                hovertemplate=f"{mark.name}<br>%{{y:.2f}}× AR at token %{{x}}<extra></extra>",
            )
        )
    return styled(
        traces,
        xaxis=dict(title="new tokens", rangemode="tozero"),
        yaxis=dict(title="speedup over AR so far", rangemode="tozero", ticksuffix="×"),
    )


def phases_figure(trace: RequestTrace) -> go.Figure:
    """Seconds per phase, stacked, one bar per lane. Decoding begins at 0; what comes before it stands to the left.

    That is the prefill, which the lanes share, and the seeding of the memories with the prompt's own records.
    """
    lanes = list(trace.lanes.values())
    names = [LANES[lane.name].short for lane in lanes]
    spent = [{"seed": -lane.seed_s, "prefill": -lane.prefill_s, **lane.phase_seconds()} for lane in lanes]
    traces = []
    for phase, colour in PHASE_COLOURS.items():
        values = [seconds_of[phase] for seconds_of in spent]
        hover = [f"{name}: {phase} {seconds(abs(value))}" for name, value in zip(names, values, strict=True)]
        traces.append(
            dict(
                x=values,
                y=names,
                orientation="h",
                name=phase,
                marker=dict(color=colour, line=dict(width=0)),
                width=0.6,
                hovertext=hover,
                hoverinfo="text",
            )
        )
    return styled(
        traces,
        bars=True,
        barmode="relative",
        xaxis=dict(title="seconds; decoding begins at 0", zeroline=True, zerolinecolor=NEUTRAL, zerolinewidth=1.5),
        yaxis=dict(autorange="reversed"),
    )
