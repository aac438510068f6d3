"""Acceptance at image-sensitive states against the others, of one answer and of a whole visit."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from app.figures.base import styled
from app.marks import DRAFTING, LANES
from app.sensitive import Counts, Split

KINDS = ("image-sensitive", "other states")


def split_figure(splits: Mapping[str, Split]) -> go.Figure:
    """Grouped bars: per group of `splits` (this answer, this visit) both kinds of states, a bar for each lane."""
    traces = []
    for name in DRAFTING:
        shown = {words: parts[name] for words, parts in splits.items() if name in parts}
        if not shown:
            continue
        counts: list[Counts] = [count for pair in shown.values() for count in pair]
        mark = LANES[name]
        traces.append(
            dict(
                x=[[words for words in shown for _ in KINDS], [kind for _ in shown for kind in KINDS]],
                y=[count.rate for count in counts],
                name=mark.short,
                marker=dict(color=mark.colour),
                text=[f"{count.accepted}/{count.tried}" for count in counts],
                textposition="outside",
                cliponaxis=False,
                hovertext=[
                    f"{mark.name}: {count.accepted} accepted of {count.tried} states with a draft, of {count.states}"
                    for count in counts
                ],
                hoverinfo="text",
            )
        )
    return styled(
        traces,
        bars=True,
        barmode="group",
        bargap=0.45,
        yaxis=dict(title="states whose draft was accepted", tickformat=".0%", range=[0, 1.12]),
    )
