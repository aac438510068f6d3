"""One step at a time: what it did, its tree, its nodes as a table and as choices for the question "why this one?"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

import pandas as pd
import plotly.graph_objects as go

from app.figures import tree_figure
from app.marks import BONUS_COLOUR, DRAFTING, LANES, SOURCES, SourceMark, seconds, shown
from recap_engine.trace import LaneTrace, RequestTrace, StepTrace

NODE_COLUMNS = [
    "node", "token", "depth", "after", "source", "orders", "fused", "path", "1-gram", "2-gram", "3-gram",
    "decision", "target p", "rank",
]  # fmt: skip


def inspectable(trace: RequestTrace) -> list[str]:
    """The lanes that drafted at least one tree, RECAP first: autoregressive decoding has nothing to inspect."""
    return [name for name in DRAFTING if name in trace.lanes and any(step.tokens for step in trace.lanes[name].steps)]


def telling_step(lane: LaneTrace) -> int:
    """The step worth opening with: of those that accepted most, the one with the largest tree."""
    sizes = [(len(step.accepted), len(step.tokens)) for step in lane.steps]
    return max(range(len(sizes)), key=sizes.__getitem__, default=0)


def node_table(step: StepTrace, sources: Mapping[int, SourceMark], token_text: Mapping[int, str]) -> pd.DataFrame:
    """The step's nodes, one row each, in the order of the trace; probabilities to three places."""

    rows = []
    for node, token in enumerate(step.tokens):
        parent = step.parents[node]
        probabilities = (step.fused[node], step.path[node], *step.shares[node])
        rows.append(
            (
                node,
                shown(token, token_text),
                step.depths[node],
                "root" if parent < 0 else f"{parent} {shown(step.tokens[parent], token_text)}",
                sources[step.orders[node]].name,
                step.agree[node],
                *(round(value, 3) for value in probabilities),
                step.decisions[node],
                round(step.target_probs[node], 3),
                step.target_ranks[node] + 1,
            )
        )
    return pd.DataFrame(rows, columns=NODE_COLUMNS)


def step_facts(lane: LaneTrace, number: int, token_text: Mapping[int, str]) -> str:
    """What this step did, in one or two sentences of HTML."""
    step = lane.steps[number]

    def named(tokens: list[int]) -> str:
        return " ".join(f"<code>{escape(shown(token, token_text))}</code>" for token in tokens)

    phases = " · ".join(
        f"{phase} {seconds(getattr(step, f'{phase}_s'))}" for phase in ("draft", "verify", "accept", "update")
    )
    drafted = f"drafted {_count(len(step.tokens), 'node')}" if step.tokens else "drafted nothing"
    accepted = f"accepted {named([step.tokens[node] for node in step.accepted])}" if step.accepted else "accepted none"
    bonus = f", then the bonus token {named([step.bonus])}" if step.bonus is not None else ""
    return (
        f'<p class="facts" data-lane="{lane.name}" data-step="{number}" role="status">'
        f"<b>{LANES[lane.name].name}, step {number + 1} of {len(lane.steps)}.</b> "
        f"After {named([step.root_token])} it {drafted} and {accepted}{bonus}: "
        f"<b>{_count(len(step.emitted), 'token')}</b> for one pass of the target. "
        f'<span class="quiet">{phases}</span></p>'
    )


def node_choices(step: StepTrace, token_text: Mapping[int, str]) -> list[tuple[str, int]]:
    """Every node of a step, and the bonus token as the last, to choose from: what is shown, and the node's number."""
    choices = [
        (f"{shown(token, token_text)} – {step.decisions[node]}, depth {step.depths[node]}, node {node}", node)
        for node, token in enumerate(step.tokens)
    ]
    if step.bonus is not None:
        choices.append((f"{shown(step.bonus, token_text)} – bonus token: why was it not drafted?", len(step.tokens)))
    return choices


def telling_node(step: StepTrace) -> int | None:
    """The node worth asking about first: the deepest accepted one, else the first; the bonus if nothing was drafted."""
    if step.accepted:
        return step.accepted[-1]
    return 0 if step.tokens or step.bonus is not None else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def legend(lanes: Iterable[str]) -> str:
    """The legend of the trees and strips of `lanes`, as HTML; it stays whatever a step contains."""
    marks = {mark: order for lane in lanes for order, mark in SOURCES[lane].items()}
    sources = [
        f'<li style="--c:{mark.colour}"{" class=outlives" * mark.outlives}><i></i><span>{mark.name}</span></li>'
        for mark in sorted(marks, key=marks.__getitem__)
    ]
    return (
        '<ul class="legend" aria-label="Legend">'
        f"{''.join(sources)}"
        '<li><i class="ring"></i>several orders agree</li>'
        f'<li><i class="bonus" style="--c:{BONUS_COLOUR}"></i>bonus token</li>'
        '<li><i class="path"></i>accepted (filled, bold path)</li>'
        '<li><i class="hollow"></i>rejected (hollow)</li>'
        '<li><i class="hollow faint"></i>unreached (hollow, faint)</li>'
        '<li><i class="halo"></i>chosen</li>'
        '<li class="quiet">· is a space, ↵ a newline</li>'
        "</ul>"
    )


@dataclass(frozen=True)
class StepView:
    """What the inspector shows of one step."""

    facts: str
    tree: go.Figure
    nodes: pd.DataFrame
    choices: list[tuple[str, int]]
    node: int | None  # the chosen one of them


def view_step(trace: RequestTrace, lane_name: str, number: int) -> StepView:
    """The view of step `number` (from 0; a number past either end gives the step at that end)."""
    lane = trace.lanes[lane_name]
    number = min(max(number, 0), len(lane.steps) - 1)
    step, text = lane.steps[number], trace.token_text
    node = telling_node(step)
    return StepView(
        step_facts(lane, number, text),
        tree_figure(step, SOURCES[lane_name], text, [] if node is None else [node]),
        node_table(step, SOURCES[lane_name], text),
        node_choices(step, text),
        node,
    )
