"""Figures that only the lesson has: a tree's attention mask, and what a pass over a tree cost."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import plotly.graph_objects as go

from app.figures.base import MONO, styled
from app.marks import LANES, shortened, shown
from recap_engine.trace import RequestTrace, StepTrace

MASK_PX = 26  # side of one square of the mask
HIDDEN, SEEN, SEEN_HERE = "rgba(128,128,128,0.09)", "rgba(0,114,178,0.4)", "rgb(0,114,178)"


def mask_figure(step: StepTrace, token_text: Mapping[int, str], node: int) -> go.Figure:
    """Who may see whom in the pass over a step's tree: a row per token, a column per token that it may see or not.

    Row 0 is the root, row 1 + i is node i; the row of `node` is in full colour. 0 is hidden, 1 visible, 2 both.
    """
    visible = ancestors_and_self(step)
    size = len(visible)
    strength = [
        [(2 if row == node + 1 else 1) if column in visible[row] else 0 for column in range(size)]
        for row in range(size)
    ]
    names = [escape(shortened(shown(token, token_text), 12), quote=False) for token in (step.root_token, *step.tokens)]
    hover = [
        [f"{below} {'may' if column in visible[row] else 'may not'} see {above}" for column, above in enumerate(names)]
        for row, below in enumerate(names)
    ]
    ticks = [f"<b>{name}</b>" if row == node + 1 else name for row, name in enumerate(names)]
    places = list(range(size))
    axis = dict(tickvals=places, ticktext=ticks, tickfont=dict(family=MONO, size=12), zeroline=False, showgrid=False)
    squares = dict(
        type="heatmap",
        z=strength,
        colorscale=[(0, HIDDEN), (0.5, SEEN), (1, SEEN_HERE)],
        zmin=0,
        zmax=2,
        showscale=False,
        xgap=3,
        ygap=3,
        hovertext=hover,
        hoverinfo="text",
        name="mask",
    )
    return styled(
        [squares],
        height=size * MASK_PX + 110,
        margin=dict(l=8, r=16, t=8, b=8),
        xaxis=axis | dict(side="top", tickangle=-45, constrain="domain"),
        yaxis=axis | dict(range=[size - 0.5, -0.5], scaleanchor="x", constrain="domain"),
    )


def ancestors_and_self(step: StepTrace) -> list[set[int]]:
    """Per row of the pass the rows it may see: the root, its own ancestors and itself."""
    visible = [{0}]
    for row, parent in enumerate(step.parents, start=1):
        visible.append(visible[parent + 1] | {row})
    return visible


def cost_figure(trace: RequestTrace) -> go.Figure:
    """A point per step: how many nodes its tree had, and how long the target's pass over them took."""
    points = [
        dict(
            x=[len(step.tokens) for step in lane.steps],
            y=[step.verify_s * 1e3 for step in lane.steps],
            mode="markers",
            name=LANES[name].short,
            marker=dict(color=LANES[name].colour, size=8, opacity=0.55, line=dict(width=0)),
            hovertemplate=f"{LANES[name].name}<br>%{{x}} nodes, %{{y:.1f}} ms<extra></extra>",
        )
        for name, lane in trace.lanes.items()
    ]
    return styled(
        points,
        xaxis=dict(title="nodes in the tree", rangemode="tozero"),
        yaxis=dict(title="milliseconds for the pass", rangemode="tozero"),
    )
