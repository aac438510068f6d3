"""What happens on the page: which event calls what, and which parts of the page it changes."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from app import texts
from app.cards import closing_words, lane_cards, masthead, notice, verdict
from app.figures import phases_figure, progress_figure
from app.files import NoModelError, Opened, open_file, runs_of, save
from app.inspector import inspectable, telling_step, view_step
from app.lanes import Ask, StopFlag, answer
from app.marks import LANES
from app.pictures import ReadyExample, draw_scene
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.settings import Settings
from recap_engine.trace import RequestTrace

Update = dict[gr.blocks.Block, Any]  # the parts of the page that change; gradio leaves all others alone
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}
# Everything that touches the model waits in one queue, so that no visitor's run slows down another's.
ON_THE_MODEL: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1, "api_visibility": "private"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AskPart:
    """What the visitor gives: a picture, a question, settings."""

    picture: gr.Image
    question: gr.Textbox
    draw: gr.Button
    scene: gr.HTML
    gallery: gr.Gallery
    run: gr.Button
    stop: gr.Button
    message: gr.HTML
    limit: gr.Slider
    budget: gr.Dropdown
    lanes: gr.CheckboxGroup
    forget: gr.Button
    upload: gr.UploadButton


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

    @property
    def shown(self) -> list[gr.blocks.Block]:
        """The parts that show a finished run's trace."""
        return [
            *(self.empty, self.timing, self.progress, self.phases, self.download, self.inspecting),
            *(self.inspector.lane, self.inspector.step, *self.inspector.views),
        ]


@dataclass(frozen=True)
class Visit:
    """What the server keeps of one visitor, and shares with no other. gradio hands these out by reference, uncopied."""

    trace: gr.State  # RequestTrace of the last run, or None
    stop: gr.State  # StopFlag, the same object for the Stop button and for the run
    turn: gr.State  # how many runs there were


def wire_head(page: gr.Blocks, head: gr.HTML, loading: Future[Engine]) -> None:
    """Name the model as soon as it is loaded, or say why it can't be."""

    async def watch() -> AsyncIterator[str]:
        try:
            engine = await asyncio.shield(asyncio.wrap_future(loading))
            precision = str(engine.dtype).removeprefix("torch.")
            yield masthead("ready", f"{engine.model_name} · {engine.device} · {precision}")
        except NoModelError:
            yield masthead("off", texts.NO_MODEL_CHIP)
        except Exception as error:
            yield masthead("failed", sentence(error))

    page.load(watch, outputs=head, **QUIET)


def wire_pictures(ask: AskPart, examples: Sequence[ReadyExample]) -> None:
    """Examples and drawn scenes bring their own question."""
    given = [ask.picture, ask.question, ask.scene]

    def choose(event: gr.SelectData) -> tuple[str, str, str]:
        example = examples[event.index]
        return str(example.picture), example.question, ""

    ask.gallery.select(choose, outputs=given, **QUIET)
    ask.draw.click(draw_scene, outputs=given, **QUIET)


def wire_run(ask: AskPart, result: ResultPart, loading: Future[Engine], visit: Visit) -> None:
    """Run streams the cards and leaves a trace, which is then shown; Stop ends the run and keeps what there is."""

    def answer_all(
        picture: str | None, question: str, lanes: Sequence[str], limit: float, budget: Any, turn: int, stop: StopFlag
    ) -> Iterator[Update]:
        stop.pressed = False
        busy: Update = {ask.run: gr.update(interactive=False), ask.stop: gr.update(interactive=True)}
        yield {**busy, visit.trace: None, result.verdict: ""}
        try:
            if not lanes:
                raise RecapError(texts.NO_LANES)
            settings = Settings(max_new_tokens=int(limit), budget=budget if budget == "auto" else int(budget))
            if not loading.done():
                yield {ask.message: notice(texts.STILL_LOADING)}
            for moment in answer(loading.result(), Ask(question, picture, lanes, settings, turn), stop):
                yield {result.cards: lane_cards(moment.runs), ask.message: notice(moment.doing)}
            told = notice(closing_words(list(moment.runs), turn, with_picture=picture is not None))
            yield {visit.trace: moment.trace, result.verdict: verdict(moment.trace) if moment.trace else ""}
        except Exception as error:
            told = notice(sentence(error), "bad")
            gr.Warning(sentence(error))
        idle: Update = {ask.run: gr.update(interactive=True), ask.stop: gr.update(interactive=False)}
        yield {**idle, ask.message: told, visit.turn: turn + 1}

    def show_result(trace: RequestTrace | None) -> Iterator[Update]:
        with tempfile.TemporaryDirectory() as folder:  # gradio copies the file out of it before this resumes
            yield _shown(result, trace, Path(folder))

    def press_stop(stop: StopFlag) -> None:
        stop.pressed = True

    def forget() -> str:
        try:
            loading.result().clear_memories()
        except Exception as error:
            return notice(sentence(error), "bad")
        return notice(texts.FORGOTTEN)

    # Few outputs while a lane runs: gradio goes through all of them at every update.
    running = gr.on(
        [ask.run.click, ask.question.submit],
        answer_all,
        inputs=[ask.picture, ask.question, ask.lanes, ask.limit, ask.budget, visit.turn, visit.stop],
        outputs=[ask.run, ask.stop, ask.message, result.cards, result.verdict, visit.trace, visit.turn],
        show_progress="minimal",
        show_progress_on=ask.message,
        **ON_THE_MODEL,
    )
    running.then(
        show_result,
        inputs=visit.trace,
        outputs=result.shown,
        **QUIET,
    )
    ask.stop.click(press_stop, inputs=visit.stop, queue=False, api_visibility="private")  # it must overtake the run
    ask.forget.click(forget, outputs=ask.message, **ON_THE_MODEL)


def wire_opening(page: gr.Blocks, ask: AskPart, result: ResultPart, visit: Visit, opened: Opened | None) -> None:
    """A trace from a file takes the place of a run's; a file that is none changes nothing but the message."""

    def show(file: Opened) -> Iterator[Update]:
        with tempfile.TemporaryDirectory() as folder:
            yield {
                ask.message: notice(file.words),
                visit.trace: file.trace,
                result.cards: lane_cards(runs_of(file.trace)),
                result.verdict: verdict(file.trace),
                **_shown(result, file.trace, Path(folder)),
            }

    def show_upload(path: str) -> Iterator[Update]:
        try:
            yield from show(open_file(path))
        except Exception as error:
            yield {ask.message: notice(sentence(error), "bad")}

    changed = [ask.message, visit.trace, result.cards, result.verdict, *result.shown]
    ask.upload.upload(show_upload, inputs=ask.upload, outputs=changed, **QUIET)
    if opened:
        page.load(partial(show, opened), outputs=changed, **QUIET)


def _shown(result: ResultPart, trace: RequestTrace | None, folder: Path) -> Update:
    """Timing, the trace file, and the inspector at the most telling step of the first lane that drafted."""
    areas = (result.timing, result.inspecting, result.download)
    if trace is None:
        return {result.empty: gr.update(visible=True)} | {area: gr.update(visible=False) for area in areas}
    path, label = save(trace, folder)
    names = inspectable(trace)
    shown: Update = {
        result.empty: gr.update(visible=False),
        result.timing: gr.update(visible=True),
        result.progress: progress_figure(trace),
        result.phases: phases_figure(trace),
        result.download: gr.update(value=str(path), visible=True, label=label),
        result.inspecting: gr.update(visible=bool(names)),
    }
    if names:
        inspector = result.inspector
        choices = [(LANES[name].name, name) for name in names]
        shown[inspector.lane] = gr.update(choices=choices, value=names[0])
        shown |= dict(zip([inspector.step, *inspector.views], _open_lane(trace, names[0]), strict=True))
    return shown


def wire_inspector(inspector: InspectorPart, visit: Visit) -> None:
    """Lane, slider and buttons show a step. A figure takes some 50 ms, so a dragged slider asks for the latest only."""
    given = [visit.trace, inspector.lane, inspector.step]
    changed = [inspector.step, *inspector.views]

    def show(trace: RequestTrace | None, lane: str, step: float, by: int = 0) -> Sequence[Any]:
        if trace is None or lane not in trace.lanes:
            return [gr.skip() for _ in changed]
        at = min(max(int(step) + by, 1), len(trace.lanes[lane].steps))
        return [at if by else gr.skip(), *_views(trace, lane, at)]

    def show_previous(trace: RequestTrace | None, lane: str, step: float) -> Sequence[Any]:
        return show(trace, lane, step, by=-1)

    def show_next(trace: RequestTrace | None, lane: str, step: float) -> Sequence[Any]:
        return show(trace, lane, step, by=1)

    def open_lane(trace: RequestTrace | None, lane: str) -> Sequence[Any]:
        return [gr.skip() for _ in changed] if trace is None else _open_lane(trace, lane)

    inspector.step.input(show, given, changed, trigger_mode="always_last", **QUIET)
    inspector.previous.click(show_previous, given, changed, **QUIET)
    inspector.following.click(show_next, given, changed, **QUIET)
    inspector.lane.input(open_lane, given[:2], changed, **QUIET)


def _open_lane(trace: RequestTrace, lane: str) -> Sequence[Any]:
    """The slider fitted to a lane, and the views of its most telling step."""
    steps = trace.lanes[lane].steps
    at = telling_step(trace.lanes[lane]) + 1
    return [gr.update(maximum=max(2, len(steps)), value=at), *_views(trace, lane, at)]


def _views(trace: RequestTrace, lane: str, at: int) -> Sequence[Any]:
    view = view_step(trace, lane, at - 1)
    return [view.facts, view.strip, view.tree, view.nodes]


def sentence(error: Exception) -> str:
    """What the visitor is told of an error: its own sentence if meant for people, else that the log has it."""
    if isinstance(error, RecapError):
        return str(error)
    log.error("Unexpected error on the page", exc_info=error)
    return texts.UNEXPECTED
