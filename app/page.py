"""Layout and event wiring of the page, nothing else: what is shown comes from the modules beside this one."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from app import texts
from app.cards import empty_cards, lane_cards, notice, verdict
from app.figures import phases_figure, progress_figure
from app.inspector import NODE_COLUMNS, inspectable, legend, telling_step, view_step
from app.lanes import LANE_ORDER, Ask, LaneRun, StopFlag, answer, turn_order
from app.marks import LANES
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.scenes import FAMILIES, make_example
from recap_engine.settings import Settings
from recap_engine.trace import RequestTrace

EXAMPLES = Path(__file__).parent.parent / "assets" / "examples"
BUDGETS = ["auto", 8, 16, 24, 32, 48, 64, 80]
Update = dict[gr.components.Component, Any]
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}
ON_THE_MODEL: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1, "api_visibility": "private"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AskPart:
    """What the visitor gives: a picture, a question, settings."""

    picture: gr.Image
    question: gr.Textbox
    run: gr.Button
    stop: gr.Button
    message: gr.HTML
    limit: gr.Slider
    budget: gr.Dropdown
    lanes: gr.CheckboxGroup
    forget: gr.Button


@dataclass(frozen=True)
class InspectorPart:
    """One step of one lane."""

    lane: gr.Radio
    step: gr.Slider
    previous: gr.Button
    following: gr.Button
    facts: gr.HTML
    strip: gr.HTML
    tree: gr.Plot
    nodes: gr.Dataframe

    @property
    def views(self) -> list[gr.components.Component]:
        return [self.facts, self.strip, self.tree, self.nodes]


@dataclass(frozen=True)
class ResultPart:
    """What a run leaves: cards, verdict, timing, the inspector and the trace file."""

    cards: gr.HTML
    verdict: gr.HTML
    empty: gr.HTML
    timing: gr.Column
    progress: gr.Plot
    phases: gr.Plot
    inspecting: gr.Column
    inspector: InspectorPart
    download: gr.DownloadButton


def build_page(loading: Future[Engine]) -> gr.Blocks:
    """The page as gradio Blocks. `loading` gives the engine once its model is loaded; the page opens before that."""
    with gr.Blocks(title=texts.TITLE, analytics_enabled=False, delete_cache=(3600, 86400)) as page:
        trace = gr.State(None)  # RequestTrace of this visitor's last run, never another's; gradio keeps it by reference
        stop_flag = gr.State(StopFlag())  # copied once per visitor; the Stop button and the run then share that copy
        turn = gr.State(0)
        head = gr.HTML(masthead("loading", "loading the model …"))
        asking = _lay_out_ask()
        result = _lay_out_result()
        _lay_out_help()

        _wire_run(asking, result, loading, trace, stop_flag, turn)
        _wire_inspector(result.inspector, trace)
        _wire_head(page, head, loading)
    return page


# ---- layout ----------------------------------------------------------------------------------------------------


def _lay_out_ask() -> AskPart:
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            picture = gr.Image(label="Picture", type="filepath", format="png", height=330, elem_id="picture")
            picture.preprocess = _as_uploaded  # type: ignore[method-assign]
            draw = gr.Button("Draw me a new scene", size="sm", elem_id="draw")
            scene = gr.HTML()
        with gr.Column(scale=3, min_width=320):
            question = gr.Textbox(
                label="Question", placeholder="What is in the picture?", max_lines=5, elem_id="question"
            )
            with gr.Row():
                run = gr.Button("Run", variant="primary", elem_id="run", min_width=120)
                stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop", min_width=120)
            message = gr.HTML(notice(texts.FIRST_STEPS), elem_id="message")
            examples = _read_examples()
            gallery = gr.Gallery(
                [(str(path), family) for path, _, family in examples],
                show_label=False,
                object_fit="contain",
                allow_preview=False,
                interactive=False,
                buttons=[],
                visible=bool(examples),
                elem_id="examples",
            )
            with gr.Accordion("Settings", open=False):
                with gr.Row():
                    limit = gr.Slider(8, 512, value=200, step=8, label="Most new tokens", elem_id="limit")
                    budget = gr.Dropdown(BUDGETS, value="auto", label="Budget: most nodes in a tree")
                lanes = gr.CheckboxGroup(
                    [(LANES[name].name, name) for name in LANE_ORDER], value=list(LANE_ORDER), label="Lanes"
                )
                forget = gr.Button("Empty the persistent memories", size="sm")

    def choose(event: gr.SelectData) -> tuple[str, str, str]:
        path, asked, _ = examples[event.index]
        return str(path), asked, ""

    gallery.select(choose, outputs=[picture, question, scene], **QUIET)
    draw.click(_draw_scene, outputs=[picture, question, scene], **QUIET)
    return AskPart(picture, question, run, stop, message, limit, budget, lanes, forget)


def _lay_out_result() -> ResultPart:
    cards = gr.HTML(empty_cards(LANE_ORDER), elem_id="cards")
    told = gr.HTML(elem_id="verdict")
    empty = gr.HTML(texts.BEFORE_FIRST_RUN)
    with gr.Column(visible=False) as timing:
        gr.HTML(_heading("Timing", "The engine's own timestamps, one per step."))
        with gr.Row():
            progress = gr.Plot(show_label=False, container=False, min_width=320, elem_classes="figure")
            phases = gr.Plot(show_label=False, container=False, min_width=320, elem_classes="figure")
    with gr.Column(visible=False, elem_id="inspector") as inspecting:
        inspector = _lay_out_inspector()
    download = gr.DownloadButton("Download the trace", visible=False, elem_id="download")
    return ResultPart(cards, told, empty, timing, progress, phases, inspecting, inspector, download)


def _lay_out_inspector() -> InspectorPart:
    gr.HTML(_heading("Candidate trees", "One step at a time: what was proposed, by which memory, and what came of it."))
    with gr.Row(equal_height=True):
        lane = gr.Radio([], label="Lane", elem_id="lane", scale=2, min_width=250)
        step = gr.Slider(1, 2, value=1, step=1, label="Step", elem_id="step", scale=3, min_width=260)
        with gr.Column(scale=2, min_width=250), gr.Row():
            previous = gr.Button("← Previous", elem_id="previous", min_width=110)
            following = gr.Button("Next →", elem_id="next", min_width=110)
    facts = gr.HTML(elem_id="facts")
    strip = gr.HTML(elem_id="strip")
    gr.HTML(legend())
    tree = gr.Plot(show_label=False, container=False, elem_id="tree", elem_classes=["figure", "tree"])
    with gr.Accordion("The nodes of this step as a table", open=True):
        nodes = gr.Dataframe(headers=NODE_COLUMNS, show_label=False, interactive=False, max_height=360, elem_id="nodes")
    return InspectorPart(lane, step, previous, following, facts, strip, tree, nodes)


def _lay_out_help() -> None:
    with gr.Accordion("How to read this page", open=False):
        gr.Markdown(texts.HOW_TO_READ)
    with gr.Accordion("What the model can read, and how to choose another", open=False):
        gr.Markdown(texts.EMBEDDED_MODEL + texts.HUB_MODEL)


def masthead(state: str, words: str) -> str:
    """The page's head. `state` is loading, ready or failed; `words` name the model, or say what is wrong."""
    chip = f'<span class="chip {state}" role="status">{escape(words)}</span>'
    return f'<div class="masthead"><div><h1>{texts.TITLE}</h1>{chip}</div><p>{texts.TAGLINE}</p></div>'


def _heading(title: str, subtitle: str) -> str:
    return f'<div class="heading"><h2>{title}</h2><p>{subtitle}</p></div>'


# ---- what the visitor gives ------------------------------------------------------------------------------------


def _as_uploaded(payload: Any) -> str | None:
    """The picture's file as it was uploaded.

    gradio's own preprocessing would open it first, and answer a broken or huge file with a bare "Error";
    `recap_engine.images.open_image` says what is wrong with it.
    """
    return payload.path if payload else None


def _read_examples() -> list[tuple[Path, str, str]]:
    """(picture, question, family) of the ready examples that are there."""
    listing = EXAMPLES / "examples.json"
    entries = json.loads(listing.read_text(encoding="utf-8")) if listing.exists() else []
    found = [(EXAMPLES / Path(entry["image"]).name, entry["question"], entry["family"]) for entry in entries]
    return [example for example in found if example[0].exists()]


def _draw_scene() -> tuple[Any, str, str]:
    """A picture never seen before, its question, and where it comes from."""
    family, seed = random.choice(FAMILIES), random.randrange(10**6)
    example = make_example(family, seed, split="demo")
    question, true_answer = example.turns[0]
    return (
        example.picture,
        question,
        f'<details class="scene"><summary>Family “{family}”, seed {seed}. Show the true answer</summary>'
        f"{escape(true_answer)}</details>",
    )


# ---- events ----------------------------------------------------------------------------------------------------


def _wire_head(page: gr.Blocks, head: gr.HTML, loading: Future[Engine]) -> None:
    async def watch() -> AsyncIterator[str]:
        try:
            engine = await asyncio.shield(asyncio.wrap_future(loading))
        except Exception as error:
            yield masthead("failed", sentence(error))
        else:
            yield masthead(
                "ready", f"{engine.model_name} · {engine.device} · {str(engine.dtype).removeprefix('torch.')}"
            )

    page.load(watch, outputs=head, **QUIET)


def _wire_run(
    ask: AskPart, result: ResultPart, loading: Future[Engine], trace: gr.State, stop_flag: gr.State, turn: gr.State
) -> None:
    def answer_all(
        picture: str | None, question: str, lanes: Sequence[str], limit: float, budget: Any, turns: int, stop: StopFlag
    ) -> Iterator[Update]:
        stop.pressed = False
        yield {ask.run: gr.update(interactive=False), ask.stop: gr.update(interactive=True), result.verdict: ""}
        closing_words = ""
        try:
            if not lanes:
                raise RecapError(texts.NO_LANES)
            settings = Settings(max_new_tokens=int(limit), budget=budget if budget == "auto" else int(budget))
            if not loading.done():
                yield {ask.message: notice("The model is still loading; the run begins when it is there.")}
            for moment in answer(loading.result(), Ask(question, picture, lanes, settings, turns), stop):
                yield {result.cards: lane_cards(moment.runs), ask.message: notice(moment.doing)}
            if moment.trace:
                closing_words = notice(_closing_words(moment.runs, picture is not None, turns))
                yield _show_result(result, moment.trace) | {trace: moment.trace}
        except Exception as error:
            closing_words = notice(sentence(error), "bad")
            gr.Warning(sentence(error))
        yield {
            ask.message: closing_words,
            ask.run: gr.update(interactive=True),
            ask.stop: gr.update(interactive=False),
            turn: turns + 1,
        }

    def press_stop(stop: StopFlag) -> None:
        stop.pressed = True

    def forget() -> str:
        loading.result().clear_memories()
        return notice("The persistent memories are empty: the next run starts cold.")

    gr.on(
        [ask.run.click, ask.question.submit],
        answer_all,
        inputs=[ask.picture, ask.question, ask.lanes, ask.limit, ask.budget, turn, stop_flag],
        outputs=[
            *(ask.run, ask.stop, ask.message, trace, turn, result.cards, result.verdict, result.empty, result.timing),
            *(result.progress, result.phases, result.inspecting, result.download),
            *(result.inspector.lane, result.inspector.step),
            *result.inspector.views,
        ],
        show_progress="minimal",
        show_progress_on=ask.message,
        **ON_THE_MODEL,
    )
    ask.stop.click(
        press_stop, inputs=stop_flag, queue=False, api_visibility="private"
    )  # no queue: it must overtake the run
    ask.forget.click(forget, outputs=ask.message, **ON_THE_MODEL)


def _closing_words(runs: Mapping[str, LaneRun], with_picture: bool, turn: int) -> str:
    order = ", then ".join(LANES[name].name for name in turn_order(list(runs), turn))
    words = f"Answered by {order}."
    return words if with_picture else f"{texts.WITHOUT_PICTURE} {words}"


def _show_result(result: ResultPart, trace: RequestTrace) -> Update:
    """Timing, the trace file, and the inspector at the most telling step of the first lane that drafted."""
    path = Path(tempfile.mkdtemp(prefix="recap-")) / "recap-trace.json"
    trace.save(path)
    size = path.stat().st_size / 1024
    shown: Update = {
        result.verdict: verdict(trace),
        result.empty: gr.update(visible=False),
        result.timing: gr.update(visible=True),
        result.progress: progress_figure(trace),
        result.phases: phases_figure(trace),
        result.download: gr.update(value=str(path), visible=True, label=f"Download the trace (JSON, {size:,.0f} kB)"),
        result.inspecting: gr.update(visible=bool(inspectable(trace))),
    }
    if names := inspectable(trace):
        inspector = result.inspector
        choices = [(LANES[name].name, name) for name in names]
        shown |= {inspector.lane: gr.update(choices=choices, value=names[0])}
        shown |= dict(zip([inspector.step, *inspector.views], _open_lane(trace, names[0]), strict=True))
    return shown


def _wire_inspector(inspector: InspectorPart, trace: gr.State) -> None:
    """A figure takes some 50 ms to build, so a dragged slider asks for the latest step only."""
    lane, step = inspector.lane, inspector.step

    def show(shown: RequestTrace | None, name: str, number: float, by: int = 0) -> Sequence[Any]:
        if shown is None or name not in shown.lanes:
            return [gr.skip()] * 5
        at = min(max(int(number) + by, 1), len(shown.lanes[name].steps))
        return [at if by else gr.skip(), *_views(shown, name, at)]

    outputs = [step, *inspector.views]
    step.input(show, [trace, lane, step], outputs, trigger_mode="always_last", **QUIET)
    inspector.previous.click(lambda *given: show(*given, by=-1), [trace, lane, step], outputs, **QUIET)
    inspector.following.click(lambda *given: show(*given, by=1), [trace, lane, step], outputs, **QUIET)
    lane.input(_open_lane, [trace, lane], outputs, **QUIET)


def _open_lane(trace: RequestTrace, name: str) -> Sequence[Any]:
    """The slider fitted to a lane, and the views of its most telling step."""
    lane = trace.lanes[name]
    at = telling_step(lane) + 1
    return [gr.update(maximum=max(2, len(lane.steps)), value=at), *_views(trace, name, at)]


def _views(trace: RequestTrace, name: str, at: int) -> Sequence[Any]:
    view = view_step(trace, name, at - 1)
    return [view.facts, view.strip, view.tree, view.nodes]


def sentence(error: Exception) -> str:
    """What the visitor is told of an error: its own sentence if meant for people, else that the log has it."""
    if isinstance(error, RecapError):
        return str(error)
    log.error("Unexpected error on the page", exc_info=error)
    return texts.UNEXPECTED
