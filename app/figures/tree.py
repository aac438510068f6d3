"""One step's candidate tree as a Plotly figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go

from app.figures.base import CLEAR, GRID, MONO, styled
from app.marks import BONUS_COLOUR, HALO_COLOUR, NEUTRAL, SourceMark, shortened, shown
from recap_engine.trace import ROOT, StepTrace

ROW_PX = 24  # height of one row of the tree: a marker and the text above its edge
COLUMN_PX = 84  # least width of one depth; the page lets a tree that is wider than the screen scroll
LABEL = 11  # characters of a token's text that fit above its edge
SYMBOLS = {False: "circle", True: "triangle-up"}  # by whether the source is a long key that outlives its request
GAP = 0.009  # part of the width by which an edge stops short of a marker's centre: a hollow marker stays hollow
CURVE = [(t / 12, (t / 12) ** 2 * (3 - t / 6)) for t in range(13)]  # a smooth step, (x, y) from (0, 0) to (1, 1)
BEND = 0.38  # part of a column in which an edge bends; the rest runs level and carries the token's text
EDGES = {"unreached": (1, 0.3), "rejected": (1, 0.7), "accepted": (3.2, 0.9)}  # width and opacity by decision
FAINT = 0.4  # opacity of what was not reached


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
    highest = min(rows.values())  # a deep subtree beside a shallow one may reach above it
    return {node: row - highest for node, row in rows.items()}


def tree_figure(
    step: StepTrace, sources: Mapping[int, SourceMark], token_text: Mapping[int, str], chosen: Collection[int] = ()
) -> go.Figure:
    """The candidate tree of one step: depth runs to the right, better-ranked siblings stand higher.

    A filled marker is accepted, a hollow one rejected, a hollow and faint one unreached. Colour and shape are those of
    the source with the largest share, one of `sources` by order; a ring says that several orders proposed the token.
    The bold line is the accepted path, up to the bonus token, which counts as node `len(step.tokens)` here. The
    `chosen` nodes stand in a halo. The trace named `nodes` has one marker per node of the step, in the step's order;
    its customdata is the node's number.
    """
    bonus = len(step.tokens)
    last_accepted = step.accepted[-1] if step.accepted else ROOT
    children: dict[int, list[int]] = {}
    if step.bonus is not None:
        children[last_accepted] = [bonus]
    for node, parent in enumerate(step.parents):
        children.setdefault(parent, []).append(node)
    rows = tidy_rows(children)
    depths = {ROOT: 0, **dict(enumerate(step.depths))}
    if step.bonus is not None:
        depths[bonus] = depths[last_accepted] + 1
    deepest = max(depths.values())
    places = {node: (depth, rows[node]) for node, depth in depths.items()}

    traces = [
        *_legend(sources),
        *_edges(step, places, GAP * (deepest + 1)),
        _points("halo", [places[node] for node in chosen if node in places], color=HALO_COLOUR, size=31),
        *_nodes(step, sources, token_text, places),
        _end("root", places[ROOT], step.root_token, NEUTRAL, "square", "the last committed token", token_text),
    ]
    if step.bonus is not None:
        meaning = "the target's own next token"
        traces.append(_end("bonus", places[bonus], step.bonus, BONUS_COLOUR, "diamond", meaning, token_text, bonus))
    lowest = max(rows.values())
    return styled(
        traces,
        height=max(220, int((lowest + 1) * ROW_PX) + 70),
        margin=dict(l=8, r=16, t=34, b=8),
        showlegend=False,  # the page has its own, which stays while the tree scrolls; an exported file shows this one
        legend=dict(orientation="h", x=0, y=-0.02, yanchor="top", traceorder="normal"),
        meta=dict(width=(deepest + 1.2) * COLUMN_PX),
        xaxis=dict(
            range=[-0.1 * (deepest + 1), 1.03 * deepest + 0.03],
            side="top",
            tickvals=list(range(deepest + 1)),
            ticktext=["root"] + [f"depth {depth}" if depth == 1 else str(depth) for depth in range(1, deepest + 1)],
            gridcolor=GRID,
            zeroline=False,
        ),
        yaxis=dict(range=[lowest + 0.6, -1.0], visible=False),
    )


def _legend(sources: Mapping[int, SourceMark]) -> list[dict[str, Any]]:
    """Traces without points that explain the marks of the others."""
    marks: dict[str, dict[str, Any]] = {
        **{mark.name: dict(color=mark.colour, size=12, symbol=SYMBOLS[mark.outlives]) for mark in sources.values()},
        "several orders agree": dict(color=NEUTRAL, size=11, symbol="circle-dot"),
        "bonus token": dict(color=BONUS_COLOUR, size=11, symbol="diamond"),
        "accepted": dict(color=NEUTRAL, size=12),
        "rejected": dict(color=NEUTRAL, size=12, symbol="circle-open", line=dict(width=2)),
        "unreached": dict(color=NEUTRAL, size=12, symbol="circle-open", line=dict(width=2), opacity=FAINT),
    }
    return [
        dict(x=[None], y=[None], mode="markers", name=name, marker=marker, hoverinfo="skip", showlegend=True)
        for name, marker in marks.items()
    ]


def _edges(step: StepTrace, places: Mapping[int, tuple[float, float]], gap: float) -> list[dict[str, Any]]:
    """The edges, one trace for each decision; those to accepted nodes and to the bonus token are bold."""
    pairs: dict[str, list[tuple[int, int]]] = {decision: [] for decision in EDGES}
    for node, parent in enumerate(step.parents):
        pairs[step.decisions[node]].append((parent, node))
    if step.bonus is not None:
        pairs["accepted"].append((step.accepted[-1] if step.accepted else ROOT, len(step.tokens)))
    traces = []
    for decision, (width, opacity) in EDGES.items():
        xs, ys = _curves([(places[parent], places[node]) for parent, node in pairs[decision]], gap)
        line = dict(color=NEUTRAL, width=width)
        traces.append(
            dict(
                x=xs,
                y=ys,
                mode="lines",
                line=line,
                opacity=opacity,
                hoverinfo="skip",
                name=f"{decision} edges",
                showlegend=False,
            )
        )
    return traces


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


def _points(name: str, places: Collection[tuple[float, float]], **marker: Any) -> dict[str, Any]:
    """Markers that only decorate."""
    xs, ys = [x for x, _ in places], [y for _, y in places]
    return dict(x=xs, y=ys, mode="markers", marker=marker, hoverinfo="skip", name=name, showlegend=False)


def _nodes(
    step: StepTrace,
    sources: Mapping[int, SourceMark],
    token_text: Mapping[int, str],
    places: Mapping[int, tuple[float, float]],
) -> list[dict[str, Any]]:
    """The rings and the markers of a step's nodes."""
    nodes = range(len(step.tokens))
    marks = [sources[order] for order in step.orders]
    colours = [mark.colour for mark in marks]
    accepted = [decision == "accepted" for decision in step.decisions]
    opacity = [FAINT if decision == "unreached" else 1.0 for decision in step.decisions]
    agreed = [node for node in nodes if step.agree[node] > 1]
    texts = [escape(shortened(shown(token, token_text), LABEL), quote=False) for token in step.tokens]
    rings = _points(
        "rings",
        [places[node] for node in agreed],
        color=CLEAR,
        size=19,
        line=dict(color=[colours[node] for node in agreed], width=1.4),
        opacity=[opacity[node] for node in agreed],
    )
    markers = dict(
        x=list(step.depths),
        y=[places[node][1] for node in nodes],
        mode="markers+text",
        marker=dict(
            color=[colour if filled else CLEAR for colour, filled in zip(colours, accepted, strict=True)],
            size=12,
            symbol=[SYMBOLS[mark.outlives] for mark in marks],
            line=dict(color=colours, width=2.2),
            opacity=opacity,
        ),
        text=[f"<b>{text}</b>" if filled else text for text, filled in zip(texts, accepted, strict=True)],
        textposition="top left",
        textfont=dict(family=MONO, size=12, color=[_grey(min(1.0, value + 0.2)) for value in opacity]),
        customdata=list(nodes),
        hovertext=[node_hover(step, node, sources, token_text) for node in nodes],
        hoverinfo="text",
        name="nodes",
        showlegend=False,
    )
    return [rings, markers]


def _end(
    name: str,
    place: tuple[float, float],
    token: int,
    colour: str,
    symbol: str,
    meaning: str,
    token_text: Mapping[int, str],
    node: int | None = None,
) -> dict[str, Any]:
    """The root or the bonus token: one marker with its text."""
    text = shown(token, token_text)
    return dict(
        x=[place[0]],
        y=[place[1]],
        mode="markers+text",
        text=[f"<b>{escape(shortened(text, LABEL), quote=False)}</b>"],
        textposition="top left",
        marker=dict(color=colour, size=13, symbol=symbol),
        textfont=dict(family=MONO, size=12, color=NEUTRAL),
        customdata=[node],
        hovertext=f"<b>{escape(text, quote=False)}</b> (id {token})<br>{name}: {meaning}",
        hoverinfo="text",
        name=name,
        showlegend=False,
    )


def node_hover(step: StepTrace, node: int, sources: Mapping[int, SourceMark], token_text: Mapping[int, str]) -> str:
    """What is known of one node, as the lines of its hover label."""
    token, parent = step.tokens[node], step.parents[node]
    above = step.root_token if parent == ROOT else step.tokens[parent]
    orders = f" ({step.agree[node]} orders agree)" if step.agree[node] > 1 else ""
    shares = " · ".join(f"{order}-gram {share:.3f}" for order, share in enumerate(step.shares[node], start=1))
    return "<br>".join(
        (
            f"<b>{escape(shown(token, token_text), quote=False)}</b> (id {token})",
            f"node {node}, depth {step.depths[node]}, after {escape(shown(above, token_text), quote=False)}",
            f"source: {sources[step.orders[node]].name}{orders}",
            f"fused probability {step.fused[node]:.3f} · path {step.path[node]:.3f}",
            f"shares: {shares}",
            f"<b>{step.decisions[node]}</b>: target gives it {step.target_probs[node]:.3f}, "
            f"rank {step.target_ranks[node] + 1}",
        )
    )


def _grey(opacity: float) -> str:
    return f"rgba(138,148,166,{opacity})"
