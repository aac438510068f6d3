"""Pure functions from a trace to Plotly figures: one step's candidate tree, and where the time went.

Every figure has a transparent ground and mid-grey text, so that it suits a light and a dark page alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import plotly.graph_objects as go

from app.marks import (
    BONUS_COLOUR,
    LANES,
    NEUTRAL,
    PHASE_COLOURS,
    SOURCE_COLOURS,
    SOURCE_NAMES,
    seconds,
    shortened,
    visible,
)
from recap_engine.trace import ROOT, RequestTrace, StepTrace

ROW_PX = 24  # height of one row of the tree: a marker and the text above its edge
GAP = 0.009  # part of the width by which an edge stops short of a marker's centre: a hollow marker stays hollow
CURVE = [(t / 12, (t / 12) ** 2 * (3 - t / 6)) for t in range(13)]  # a smooth step, (x, y) from (0, 0) to (1, 1)
BEND = 0.38  # part of a column in which an edge bends; the rest runs level and carries the token's text
CLEAR = "rgba(0,0,0,0)"
GRID = "rgba(128,128,128,0.18)"
LEGEND_ABOVE = dict(orientation="h", x=0, y=1.02, yanchor="bottom", traceorder="normal")
SANS = "IBM Plex Sans, ui-sans-serif, system-ui, sans-serif"
MONO = "IBM Plex Mono, ui-monospace, Consolas, monospace"


# ---- one step's candidate tree ---------------------------------------------------------------------------------


def tidy_rows(children: Mapping[int, list[int]], top: int = ROOT) -> dict[int, float]:
    """A row for each node: siblings in order, parents amid their children, no two nodes of a depth within one row.

    Subtrees are packed by their contours (Reingold and Tilford, 1981), so the drawing is about as high as its widest
    depth, not as its number of leaves. Rows start at 0.
    """
    rows: dict[int, float] = {}

    def place(node: int) -> list[tuple[float, float]]:  # the subtree's (first, last) row at each depth below `node`
        contour: list[tuple[float, float]] = []
        shifts: list[tuple[int, float]] = []
        for child in children.get(node, []):
            below = place(child)
            shift = max((last - first + 1 for (_, last), (first, _) in zip(contour, below, strict=False)), default=0.0)
            shifts.append((child, shift))
            moved = [(first + shift, last + shift) for first, last in below]
            contour = (
                [(a[0], b[1]) for a, b in zip(contour, moved, strict=False)]
                + contour[len(moved) :]
                + moved[len(contour) :]
            )
        for child, shift in shifts:
            move(child, shift)
        rows[node] = (rows[shifts[0][0]] + rows[shifts[-1][0]]) / 2 if shifts else 0.0
        return [(rows[node], rows[node]), *contour]

    def move(node: int, shift: float) -> None:
        rows[node] += shift
        for child in children.get(node, []):
            move(child, shift)

    place(top)
    return rows


def tree_figure(step: StepTrace, token_text: Mapping[int, str]) -> go.Figure:
    """The candidate tree of one step: depth runs to the right, better-ranked siblings stand higher.

    A filled marker is accepted, a hollow one rejected, a hollow and faint one unreached; the colour is the source with
    the largest share, a ring says that several orders proposed the token. The bold line is the accepted path, up to
    the bonus token. The trace named `nodes` has one marker per node of the step, in the step's order.
    """
    bonus = len(step.tokens)  # the id this drawing gives to the bonus token, which is no node of the tree
    last_accepted = step.accepted[-1] if step.accepted else ROOT
    children: dict[int, list[int]] = {}
    if step.bonus is not None:
        children[last_accepted] = [bonus]
    for node, parent in enumerate(step.parents):
        children.setdefault(parent, []).append(node)
    rows = tidy_rows(children)
    depths = {ROOT: 0, **dict(enumerate(step.depths))}
    depths[bonus] = depths[last_accepted] + 1
    deepest = max(depth for node, depth in depths.items() if node in rows)

    def place(node: int) -> tuple[float, float]:
        return depths[node], rows[node]

    decisions = dict(enumerate(step.decisions))
    edges: dict[str, list[tuple[int, int]]] = {"unreached": [], "rejected": [], "accepted": []}
    for node, parent in enumerate(step.parents):
        edges[decisions[node]].append((parent, node))
    if step.bonus is not None:
        edges["accepted"].append((last_accepted, bonus))

    figure = go.Figure()
    for decision, width, opacity in (("unreached", 1, 0.3), ("rejected", 1, 0.7), ("accepted", 3.2, 0.9)):
        xs, ys = _curves([(place(parent), place(node)) for parent, node in edges[decision]], GAP * (deepest + 1))
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="lines",
            line=dict(color=NEUTRAL, width=width),
            opacity=opacity,
            hoverinfo="skip",
            name=f"{decision} edges",
            showlegend=False,
        )
    figure.add_traces(_node_traces(step, token_text, rows))
    ends = [(ROOT, step.root_token, NEUTRAL, "square", "root: the last committed token")]
    if step.bonus is not None:
        ends.append((bonus, step.bonus, BONUS_COLOUR, "diamond", "bonus: the target's own next token"))
    for node, token, colour, symbol, meaning in ends:
        x, y = place(node)
        shown = visible(token_text.get(token, f"#{token}"))
        figure.add_scatter(
            x=[x],
            y=[y],
            mode="markers+text",
            text=[f"<b>{escape(shortened(shown, 14))}</b>"],
            textposition="top left",
            marker=dict(color=colour, size=13, symbol=symbol),
            textfont=dict(family=MONO, size=12, color=NEUTRAL),
            hovertext=f"<b>{escape(shown)}</b> (id {token})<br>{meaning}",
            hoverinfo="text",
            name=meaning.partition(":")[0],
            showlegend=False,
        )
    _style(figure, height=max(220, int((max(rows.values()) + 1) * ROW_PX) + 70), margin=dict(l=8, r=16, t=34, b=8))
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(
        range=[-0.1 * (deepest + 1), deepest + 0.03 * (deepest + 1)],
        side="top",
        tickvals=list(range(deepest + 1)),
        gridcolor=GRID,
        zeroline=False,
        ticktext=["root"] + [f"depth {depth}" if depth == 1 else str(depth) for depth in range(1, deepest + 1)],
    )
    figure.update_yaxes(range=[max(rows.values()) + 0.6, -1.0], visible=False)
    return figure


def _curves(
    pairs: list[tuple[tuple[float, float], tuple[float, float]]], gap: float
) -> tuple[list[float | None], list[float | None]]:
    """One line through all edges, broken by None: each bends near its parent, then runs level to its node."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for (x0, y0), (x1, y1) in pairs:
        start, end = x0 + gap, x1 - gap
        xs += [round(start + BEND * (end - start) * across, 3) for across, _ in CURVE] + [end, None]
        ys += [round(y0 + (y1 - y0) * down, 3) for _, down in CURVE] + [y1, None]
    return xs, ys


def _node_traces(step: StepTrace, token_text: Mapping[int, str], rows: Mapping[int, float]) -> list[go.Scatter]:
    """The rings and the markers of a step's nodes."""
    nodes = range(len(step.tokens))
    colours = [SOURCE_COLOURS[order] for order in step.orders]
    accepted = [decision == "accepted" for decision in step.decisions]
    faint = [0.4 if decision == "unreached" else 1.0 for decision in step.decisions]
    agreed = [node for node in nodes if step.agree[node] > 1]
    texts = [escape(shortened(visible(token_text.get(token, f"#{token}")), 14)) for token in step.tokens]
    rings = go.Scatter(
        x=[step.depths[node] for node in agreed],
        y=[rows[node] for node in agreed],
        mode="markers",
        marker=dict(
            color=CLEAR,
            size=19,
            line=dict(color=[colours[node] for node in agreed], width=1.4),
            opacity=[faint[node] for node in agreed],
        ),
        hoverinfo="skip",
        name="rings",
        showlegend=False,
    )
    markers = go.Scatter(
        x=list(step.depths),
        y=[rows[node] for node in nodes],
        mode="markers+text",
        marker=dict(
            color=[colour if filled else CLEAR for colour, filled in zip(colours, accepted, strict=True)],
            size=12,
            line=dict(color=colours, width=2.2),
            opacity=faint,
        ),
        text=[f"<b>{text}</b>" if filled else text for text, filled in zip(texts, accepted, strict=True)],
        textposition="top left",
        textfont=dict(family=MONO, size=12, color=[_grey(min(1.0, opacity + 0.2)) for opacity in faint]),
        hovertext=[node_hover(step, node, token_text) for node in nodes],
        hoverinfo="text",
        name="nodes",
        showlegend=False,
    )
    return [rings, markers]


def node_hover(step: StepTrace, node: int, token_text: Mapping[int, str]) -> str:
    """Everything that is known of one node, as the lines of its hover label."""

    def named(token: int) -> str:
        return escape(visible(token_text.get(token, f"#{token}")))

    parent = step.parents[node]
    orders = f" ({step.agree[node]} orders agree)" if step.agree[node] > 1 else ""
    written = _written(step, node)
    shares = " · ".join(f"{order}-gram {share:.3f}" for order, share in enumerate(step.shares[node], start=1))
    return "<br>".join(
        (
            f"<b>{named(step.tokens[node])}</b> (id {step.tokens[node]})",
            f"node {node}, depth {step.depths[node]}, after {named(_parent_token(step, parent))}",
            f"source: {SOURCE_NAMES[step.orders[node]]}{orders}",
            f"fused probability {step.fused[node]:.3f} · path {step.path[node]:.3f}",
            f"shares: {shares}",
            *([f"record written {written}"] if written else []),
            f"<b>{step.decisions[node]}</b>: target gives it {step.target_probs[node]:.3f}, "
            f"rank {step.target_ranks[node] + 1}",
        )
    )


def _parent_token(step: StepTrace, parent: int) -> int:
    return step.root_token if parent == ROOT else step.tokens[parent]


def _written(step: StepTrace, node: int) -> str:
    """When the record behind the node's largest share was written, in words; nothing where the trace doesn't say."""
    record = step.written[node][step.orders[node] - 1] if step.written else None
    if record is None:
        return ""
    request, number, accepted = record
    return f"in request {request}, " + (
        "from the prompt"
        if number < 0
        else f"step {number + 1}, at {'an accepted' if accepted else 'a rejected'} position"
    )


def _grey(opacity: float) -> str:
    return f"rgba(138,148,166,{opacity})"


# ---- timing ----------------------------------------------------------------------------------------------------


def progress_figure(trace: RequestTrace) -> go.Figure:
    """New tokens against seconds since decoding began, one stair per lane, with the engine's own timestamps."""
    figure = go.Figure()
    for name, lane in trace.lanes.items():
        mark = LANES[name]
        counts = [1]  # the first token comes with the prefill
        for step in lane.steps:
            counts.append(counts[-1] + len(step.emitted))
        figure.add_scatter(
            x=[0.0, *(step.ended_s for step in lane.steps)],
            y=counts,
            mode="lines",
            name=mark.short,
            line=dict(color=mark.colour, width=2.6, shape="hv"),
            hovertemplate=f"{mark.name}<br>%{{y}} tokens after %{{x:.3f}} s<extra></extra>",
        )
        figure.add_scatter(
            x=[lane.steps[-1].ended_s if lane.steps else 0.0],
            y=[counts[-1]],
            mode="markers",
            marker=dict(color=mark.colour, size=9),
            hoverinfo="skip",
            showlegend=False,
        )
    _style(figure, height=300, margin=dict(l=8, r=16, t=40, b=8))
    figure.update_layout(hovermode="closest", legend=LEGEND_ABOVE)
    figure.update_xaxes(title="seconds since decoding began", rangemode="tozero", gridcolor=GRID, zeroline=False)
    most = max((lane.n_tokens for lane in trace.lanes.values()), default=0)
    figure.update_yaxes(
        dtick=1 if most < 9 else None, title="new tokens", rangemode="tozero", gridcolor=GRID, zeroline=False
    )
    return figure


def phases_figure(trace: RequestTrace) -> go.Figure:
    """Seconds per phase, stacked, one bar per lane. Decoding begins at 0; what comes before it stands to the left.

    That is the prefill, which the lanes share, and the seeding of the memories with the prompt's own records.
    """
    figure = go.Figure()
    lanes = list(trace.lanes.values())
    names = [LANES[lane.name].short for lane in lanes]
    spent = [{"seed": -lane.seed_s, "prefill": -lane.prefill_s, **lane.phase_seconds()} for lane in lanes]
    for phase, colour in PHASE_COLOURS.items():
        values = [seconds_of[phase] for seconds_of in spent]
        figure.add_bar(
            x=values,
            y=names,
            orientation="h",
            name=phase,
            marker=dict(color=colour, line=dict(width=0)),
            width=0.6,
            hovertext=[f"{name}: {phase} {seconds(abs(value))}" for name, value in zip(names, values, strict=True)],
            hoverinfo="text",
        )
    _style(figure, height=300, margin=dict(l=8, r=16, t=40, b=8))
    figure.update_layout(barmode="relative", legend=LEGEND_ABOVE)
    figure.update_xaxes(
        title="seconds; decoding begins at 0", gridcolor=GRID, zeroline=True, zerolinecolor=NEUTRAL, zerolinewidth=1.5
    )
    figure.update_yaxes(autorange="reversed")
    return figure


def _style(figure: go.Figure, height: int, margin: dict[str, int]) -> None:
    """The look that all figures share. Axes are fixed: a finger on a figure scrolls the page."""
    figure.update_layout(
        template="none",
        height=height,
        margin=margin,
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        dragmode=False,
        font=dict(family=SANS, size=12, color=NEUTRAL),
        showlegend=True,
        hoverlabel=dict(
            bgcolor="#1F2937", bordercolor="#1F2937", align="left", font=dict(family=SANS, color="#F9FAFB", size=12)
        ),
    )
    figure.update_xaxes(fixedrange=True, automargin=True)
    figure.update_yaxes(fixedrange=True, automargin=True)
