"""The look that all figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from app.marks import NEUTRAL

CLEAR = "rgba(0,0,0,0)"
GRID = "rgba(128,128,128,0.18)"
LEGEND_ABOVE = dict(orientation="h", x=0, y=1.02, yanchor="bottom", traceorder="normal")
SANS = "IBM Plex Sans, ui-sans-serif, system-ui, sans-serif"
MONO = "IBM Plex Mono, ui-monospace, Consolas, monospace"


def styled(traces: Sequence[Mapping[str, Any]], bars: bool = False, **layout: Any) -> go.Figure:
    """A figure of scatter or bar traces. Axes are fixed: a finger on a figure scrolls the page, buttons zoom."""
    kind = "bar" if bars else "scatter"
    axis = dict(fixedrange=True, automargin=True, gridcolor=GRID, zeroline=False)
    layout["xaxis"] = axis | layout.get("xaxis", {})
    layout["yaxis"] = axis | layout.get("yaxis", {})
    look = dict(
        template="none",
        height=300,
        margin=dict(l=8, r=16, t=40, b=8),
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        dragmode=False,
        font=dict(family=SANS, size=12, color=NEUTRAL),
        hovermode="closest",
        showlegend=True,
        legend=LEGEND_ABOVE,
        hoverlabel=dict(
            bgcolor="#1F2937", bordercolor="#1F2937", align="left", font=dict(family=SANS, color="#F9FAFB", size=12)
        ),
    )
    return go.Figure([dict(type=kind) | trace for trace in traces], look | layout)
