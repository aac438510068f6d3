"""A run as one page that works without a network. The only room with plotly in it."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from recap_engine.bench.ratios import MEAN, rows
from recap_engine.bench.report import CELLS, LENGTHS, Table, by_length, by_suite, overview, sentences
from recap_engine.bench.results import Measurement, Setting
from recap_engine.stepcost import CONTEXT, LONG, StepCost

COLOURS = {
    "generate": "#B0B0B0",
    "prompt-lookup": "#AA4499",
    "ar": "#7F7F7F",
    "tr": "#D55E00",
    "tr-best": "#E8925A",
    "tr-same": "#F0BE9C",
    "recap": "#0072B2",
    "recap+": "#7733EE",
    "oracle": "#117733",
}
OTHERS = "#44AA99"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap }
"""
HOW_TO_READ = """Speedup is the time of plain decoding (ar) over a lane's on the same request. In brackets, and as
whiskers, a 95 % bootstrap interval of the mean, every suite counting the same. MAT: mean accepted tokens per step."""


def page(setting: Setting, measurements: Sequence[Measurement]) -> str:
    """Stand-alone HTML: plotly's script is part of it."""
    found = rows(measurements)
    title = escape(f"Bench of {setting.options.get('model', 'a model')}")
    options = {"full_html": False, "config": {"displaylogo": False}}
    parts = [
        f"<h1>{title}</h1><p>{HOW_TO_READ}</p>",
        _table(overview(found)),
        lanes_figure(found).to_html(include_plotlyjs=True, **options),
        f"<p>{CELLS}</p>{_table(by_suite(found))}",
        f"<p>{LENGTHS}</p>{_table(by_length(measurements))}",
        suites_figure(found).to_html(include_plotlyjs=False, **options),
        requests_figure(measurements).to_html(include_plotlyjs=False, **options),
        cost_figure(setting.cost).to_html(include_plotlyjs=False, **options) if setting.cost else "",
        _list("Ratios, outputs and notes", sentences(setting, measurements)),
        _list("Lanes", (f"{name}: {about}" for name, about in setting.lanes.items())),
        _list("Setting", (f"{name}: {value}" for name, value in {**setting.options, **setting.machine}.items())),
    ]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def lanes_figure(found: Sequence[dict[str, Any]]) -> go.Figure:
    """Every lane's speedup over all suites, decoding alone and the whole request."""
    own = [row for row in found if row["suite"] == MEAN and row["decode_mean"] is not None]
    colours = [_colour(row["lane"]) for row in own]
    figure = go.Figure()
    for clock, name, opacity in (("decode", "decoding", 1.0), ("whole", "whole request", 0.45)):
        marker = {"color": colours, "opacity": opacity}
        figure.add_bar(x=[row["lane"] for row in own], name=name, marker=marker, **_heights(own, clock))
    return _laid_out(figure, "Speedup over ar, mean of the suites", "")


def suites_figure(found: Sequence[dict[str, Any]]) -> go.Figure:
    """Every suite's speedup in decoding, one colour a lane."""
    figure = go.Figure(layout={"scattermode": "group"})
    for lane in _drafting(row["lane"] for row in found):
        own = [row for row in found if row["lane"] == lane and row["suite"] != MEAN and row["decode_mean"] is not None]
        marker = {"color": _colour(lane), "size": 9}
        figure.add_scatter(
            x=[row["suite"] for row in own], name=lane, mode="markers", marker=marker, **_heights(own, "decode")
        )
    return _laid_out(figure, "Speedup over ar in decoding, suite by suite", "")


def requests_figure(measurements: Sequence[Measurement]) -> go.Figure:
    """Every request: what the length of its answer does to the speedup."""
    figure = go.Figure()
    baseline = {m.request: m.decode_s for m in measurements if m.lane == "ar" and m.tokens > 1}
    for lane in _drafting(m.lane for m in measurements):
        own = [m for m in measurements if m.lane == lane and m.request in baseline and m.tokens > 1]
        figure.add_scatter(
            x=[m.tokens for m in own],
            y=[baseline[m.request] / m.decode_s for m in own],
            text=[escape(f"{m.suite} {m.case}, turn {m.turn}") for m in own],
            name=lane,
            mode="markers",
            marker={"color": _colour(lane), "size": 6, "opacity": 0.7},
        )
    return _laid_out(figure, "Speedup over ar in decoding, request by request", "tokens in the answer")


def cost_figure(cost: StepCost) -> go.Figure:
    """What a pass over a tree costs here: the curve that every tree is weighed against, after short and long text."""
    figure = go.Figure(layout={"height": 360, "template": "plotly_white", "title": "Step cost on this machine"})
    for context, dash in ((CONTEXT, "solid"), (LONG, "dash"))[: 2 if cost.per_token else 1]:
        milliseconds = [1e3 * seconds for seconds in cost.at(context).seconds]
        figure.add_scatter(
            x=list(range(len(milliseconds))),
            y=milliseconds,
            name=f"after {context:,} tokens",
            mode="lines",
            line={"color": COLOURS["recap"], "width": 3, "dash": dash},
            hovertemplate="%{x} nodes: %{y:.2f} ms",
        )
    figure.update_xaxes(title="nodes in the tree")
    return figure.update_yaxes(title="milliseconds for a step", rangemode="tozero")


def _drafting(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name not in ("ar", "generate")]


def _colour(lane: str) -> str:
    return COLOURS.get(lane, OTHERS)


def _heights(own: Sequence[dict[str, Any]], clock: str) -> dict[str, Any]:
    middle, down, up = (np.array([row[f"{clock}_{part}"] for row in own]) for part in ("mean", "low", "high"))
    return {"y": middle, "error_y": {"type": "data", "array": up - middle, "arrayminus": middle - down, "thickness": 1}}


def _laid_out(figure: go.Figure, title: str, x: str) -> go.Figure:
    figure.update_layout(title=title, xaxis_title=x, yaxis_title="speedup", template="plotly_white", height=440)
    figure.update_yaxes(rangemode="tozero")
    return figure.add_hline(y=1.0, line={"color": "#888", "dash": "dot"})


def _table(table: Table) -> str:
    lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table]
    head, body = lines[0].replace("td>", "th>"), "".join(lines[1:])
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _list(title: str, lines: Iterable[str]) -> str:
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
