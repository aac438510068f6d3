"""The lesson's tab: a page's text and its question on one side, what it shows of a recorded trace on the other.

No model is needed: everything comes from the traces in assets/traces, which are read when a page first wants them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from app import texts
from app.cards import notice
from app.figures import progress_figure, tree_figure
from app.figures.lesson import cost_figure, mask_figure
from app.inspector import legend, step_facts
from app.lesson import PAGES, Page
from app.lesson_facts import fill
from app.lesson_picks import Moment
from app.marks import SOURCES, seconds
from app.race import race_board
from app.strips import answer_strip
from app.why import explain
from app.why_panel import why_panel
from app.wiring import QUIET, Update, sentence
from recap_engine.scenes.gallery import EXAMPLES
from recap_engine.trace import RequestTrace, TraceError

FOLDER = EXAMPLES.with_name("traces")  # that of `recap_engine.recordings`, which can't be imported without torch


@dataclass(frozen=True)
class LessonPart:
    """The parts of the tab that a page changes."""

    tab: gr.Tab
    page: gr.Dropdown
    previous: gr.Button
    following: gr.Button
    body: gr.Markdown
    question: gr.HTML
    sources: gr.HTML
    onward: gr.Button
    scene: gr.HTML
    panels: dict[str, gr.components.Component]  # by the names in `lesson.PANELS`

    @property
    def shown(self) -> list[gr.blocks.Block]:
        texts = [self.page, self.previous, self.following, self.body, self.question, self.sources, self.onward]
        return [*texts, self.scene, *self.panels.values()]


# ---- layout ------------------------------------------------------------------------------------------------------


def lay_out_lesson(tab: gr.Tab) -> LessonPart:
    """The tab's parts, inside `tab`."""
    with gr.Row(equal_height=True, elem_id="lesson-pages"):
        previous = gr.Button("← Previous", elem_id="lesson-previous", min_width=110, scale=1)
        titles = [(f"{number}. {page.title}", number - 1) for number, page in enumerate(PAGES, start=1)]
        page = gr.Dropdown(
            titles, value=0, label="Page", container=False, filterable=False, elem_id="lesson-page", scale=4
        )
        following = gr.Button("Next →", variant="primary", elem_id="lesson-next", min_width=110, scale=1)
    with gr.Row(elem_id="lesson-row"):
        with gr.Column(scale=5, min_width=320, elem_id="lesson-text"):
            body = gr.Markdown(elem_id="lesson-body", latex_delimiters=[])
            question = gr.HTML(elem_id="lesson-question")
            onward = gr.Button("Next page →", size="sm", elem_id="lesson-onward")
            sources = gr.HTML(elem_id="lesson-sources")
        with gr.Column(scale=8, min_width=320, elem_id="lesson-views"):
            scene = gr.HTML(elem_id="lesson-scene")
            panels: dict[str, gr.components.Component] = {
                "pace": _plot("pace"),
                "race": _plot("race"),
                "replay": gr.HTML(visible=False, elem_id="lesson-replay"),
                "cost": _plot("cost"),
                "facts": gr.HTML(visible=False, elem_id="lesson-facts"),
                "why": gr.HTML(visible=False, elem_id="lesson-why"),
                "legend": gr.HTML(visible=False),
                "tree": _plot("tree", "tree"),
                "mask": _plot("mask"),
                "strip": gr.HTML(visible=False, elem_id="lesson-strip"),
            }
    return LessonPart(tab, page, previous, following, body, question, sources, onward, scene, panels)


def _plot(name: str, *classes: str) -> gr.Plot:
    return gr.Plot(
        show_label=False, container=False, visible=False, elem_id=f"lesson-{name}", elem_classes=["figure", *classes]
    )


# ---- what a page shows -------------------------------------------------------------------------------------------


@cache
def recorded(name: str) -> RequestTrace:
    """One of the recorded traces. Raises TraceError if it isn't there."""
    return RequestTrace.load(FOLDER / f"{name}.json.gz")


def moment_of(page: Page, trace: RequestTrace) -> Moment:
    """What the page's rule finds in a trace."""
    return page.view.pick(trace, trace.lanes[page.view.lane])


def narrower(tree: go.Figure) -> go.Figure:
    """A tree for the narrow column beside the text: its depths may stand closer before it has to be scrolled."""
    return tree.update_layout(meta=dict(width=0.9 * tree.layout.meta["width"]))


SHOWN: dict[str, Callable[[Moment], Any]] = {
    "pace": lambda m: progress_figure(replace(m.trace, lanes={m.lane.name: m.whole})),
    "race": lambda m: progress_figure(m.trace),
    "replay": lambda m: race_board(m.trace),
    "cost": lambda m: cost_figure(m.trace),
    "legend": lambda m: legend([m.lane.name]),
    "facts": lambda m: step_facts(m.lane, m.number, m.trace.token_text),
    "tree": lambda m: narrower(tree_figure(m.step, SOURCES[m.lane.name], m.trace.token_text, m.nodes)),
    "mask": lambda m: mask_figure(m.step, m.trace.token_text, m.node),
    "why": lambda m: why_panel(explain(m.trace, m.whole, m.number, m.node), m.whole, m.trace.token_text),
    "strip": lambda m: answer_strip(m.whole, m.number, m.trace.token_text),
}  # a panel's content, from what the page points at


def show_page(part: LessonPart, number: int) -> Update:
    """Page `number`, from 0, with its live views; without the recorded traces, a sentence instead of them."""
    page, last = PAGES[number], number == len(PAGES) - 1
    turned: Update = {
        part.page: number,
        part.previous: gr.update(interactive=number > 0),
        part.following: gr.update(interactive=not last),
        part.onward: gr.update(visible=not last),
    }
    hidden = {panel: gr.update(visible=False) for panel in part.panels.values()}
    try:
        moment = moment_of(page, recorded(page.view.trace))
    except Exception as error:
        why = texts.NO_RECORDINGS if isinstance(error, TraceError) else sentence(error)
        untold = {part.body: f"## {page.title}", part.question: "", part.sources: "", part.scene: notice(why, "bad")}
        return turned | hidden | untold
    views = {part.panels[name]: gr.update(value=SHOWN[name](moment), visible=True) for name in page.view.panels}
    told = {
        part.body: f"## {page.title}\n{fill(page.body, moment)}",
        part.question: question_card(page, moment),
        part.sources: sources_line(page),
        part.scene: scene_card(page, moment),
    }
    return turned | hidden | views | told


def question_card(page: Page, moment: Moment) -> str:
    """The page's question; its answer opens on request."""
    number = PAGES.index(page) + 1
    return (
        f'<section class="quiz" data-page="{number}" aria-label="Question"><p>{fill(page.question, moment)}</p>'
        f"<details><summary>Show the answer</summary><p>{fill(page.answer, moment)}</p></details></section>"
    )


def sources_line(page: Page) -> str:
    links = [
        f'{source.authors}: <a href="{source.url}" target="_blank" rel="noopener">{source.title}</a>'
        for source in page.sources
    ]
    return f'<p class="sources">Sources: {"; ".join(links)}.</p>'


def scene_card(page: Page, moment: Moment) -> str:
    """The picture and the question that the recording is about."""
    trace = moment.trace
    when = f"{trace.created[:10]}, {trace.model} on {trace.machine.get('device', 'an unknown device')}"
    answered = f"{trace.lanes['ar'].n_tokens} tokens in {seconds(trace.lanes['ar'].decode_s)} by AR"
    picture = _picture(FOLDER / f"{page.view.trace}.png")
    return (
        f'<figure class="scene-card">{picture}<figcaption><b>{escape(trace.question)}</b>'
        f'<span class="words" tabindex="0">{escape(moment.whole.text)}</span>'
        f'<span class="quiet">Recorded {escape(when)}: {answered}.</span></figcaption></figure>'
    )


@cache
def _picture(path: Path) -> str:
    """The picture inside the page itself; nothing if it isn't there."""
    if not path.exists():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="The picture that was asked about" width="120" height="120">'


# ---- events ------------------------------------------------------------------------------------------------------


def wire_lesson(part: LessonPart) -> None:
    """The page list and the buttons turn the page; the first page is drawn when the tab is opened."""

    def turn(number: int, by: int = 0) -> Update:
        return show_page(part, min(max(number + by, 0), len(PAGES) - 1))

    def turn_back(number: int) -> Update:
        return turn(number, -1)

    def turn_on(number: int) -> Update:
        return turn(number, 1)

    part.tab.select(turn, part.page, part.shown, **QUIET)
    part.page.input(turn, part.page, part.shown, **QUIET)
    part.previous.click(turn_back, part.page, part.shown, **QUIET)
    part.following.click(turn_on, part.page, part.shown, **QUIET)
    part.onward.click(turn_on, part.page, part.shown, js=TO_THE_TOP, **QUIET)


TO_THE_TOP = "(page) => { document.querySelector('#lesson-pages').scrollIntoView(); return page; }"
