"""What happens on the page: which event calls what, and which parts of the page it changes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from app import texts
from app.cards import closing_words, lane_cards, notice, verdict
from app.files import Opened, open_file, runs_of, save
from app.given import read_ask
from app.inspector_view import Inspector, show_trace, wire_inspector
from app.lanes import StopFlag
from app.memory_panel import MemoryPart, session
from app.pictures import ReadyExample, draw_scene
from app.running import Running
from app.wiring import ON_THE_MODEL, QUIET, Update, Visit, sentence
from recap_engine.trace import RequestTrace


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
    memory: MemoryPart
    upload: gr.UploadButton


@dataclass(frozen=True)
class ResultPart:
    """What a run leaves: cards, verdict, the inspector and the trace file."""

    cards: gr.HTML
    verdict: gr.HTML
    empty: gr.HTML
    inspector: Inspector
    download: gr.DownloadButton

    @property
    def shown(self) -> list[gr.blocks.Block]:
        """The parts that show a finished run's trace."""
        return [self.empty, self.download, *self.inspector.shown]


def wire_pictures(ask: AskPart, examples: Sequence[ReadyExample]) -> None:
    """Examples and drawn scenes bring their own question."""
    given = [ask.picture, ask.question, ask.scene]

    def choose(event: gr.SelectData) -> tuple[str, str, str]:
        example = examples[event.index]
        return str(example.picture), example.question, ""

    ask.gallery.select(choose, outputs=given, **QUIET)
    ask.draw.click(draw_scene, outputs=given, **QUIET)


def wire_run(ask: AskPart, result: ResultPart, running: Running, visit: Visit) -> gr.events.Dependency:
    """Run streams the cards and leaves a trace, which is then shown; Stop ends the run and keeps what there is.

    Returns the run.
    """

    def answer_all(
        picture: str | None,
        question: str,
        lanes: Sequence[str],
        limit: float,
        budget: Any,
        turn: int,
        stop: StopFlag,
        request: gr.Request | None = None,
    ) -> Iterator[Update]:
        stop.pressed = False
        busy: Update = {ask.run: gr.update(interactive=False), ask.stop: gr.update(interactive=True)}
        yield {**busy, visit.trace: None, result.verdict: ""}
        try:
            asked = read_ask(question, picture, lanes, limit, budget, turn)
            if running.serving.status.state == "loading":
                yield {ask.message: notice(texts.STILL_LOADING)}
            for moment in running.answer(asked, stop, session(request)):
                yield {result.cards: lane_cards(moment.runs), ask.message: notice(moment.doing)}
            told = notice(closing_words(list(moment.runs), turn, picture is not None, moment.reduced))
            told_result = verdict(moment.trace) if moment.trace else ""
            yield {visit.trace: moment.trace, visit.asked: asked, result.verdict: told_result}
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

    # Few outputs while a lane runs: gradio goes through all of them at every update.
    ran = gr.on(
        [ask.run.click, ask.question.submit],
        answer_all,
        inputs=[ask.picture, ask.question, ask.lanes, ask.limit, ask.budget, visit.turn, visit.stop],
        outputs=[ask.run, ask.stop, ask.message, result.cards, result.verdict, visit.trace, visit.asked, visit.turn],
        show_progress="minimal",
        show_progress_on=ask.message,
        **ON_THE_MODEL,
    )
    ran.then(
        show_result,
        inputs=visit.trace,
        outputs=result.shown,
        **QUIET,
    )
    ask.stop.click(press_stop, inputs=visit.stop, queue=False, api_visibility="private")  # it must overtake the run
    return ran


def wire_opening(page: gr.Blocks, ask: AskPart, result: ResultPart, visit: Visit, opened: Opened | None) -> None:
    """A trace from a file takes the place of a run's; a file that is none changes nothing but the message."""

    def show(file: Opened) -> Iterator[Update]:
        with tempfile.TemporaryDirectory() as folder:
            yield {
                ask.message: notice(file.words),
                visit.trace: file.trace,
                visit.asked: None,
                result.cards: lane_cards(runs_of(file.trace)),
                result.verdict: verdict(file.trace),
                **_shown(result, file.trace, Path(folder)),
            }

    def show_upload(path: str) -> Iterator[Update]:
        try:
            yield from show(open_file(path))
        except Exception as error:
            yield {ask.message: notice(sentence(error), "bad")}

    changed = [ask.message, visit.trace, visit.asked, result.cards, result.verdict, *result.shown]
    ask.upload.upload(show_upload, inputs=ask.upload, outputs=changed, **QUIET)
    if opened:
        page.load(partial(show, opened), outputs=changed, **QUIET)


def wire_result(result: ResultPart, running: Running, visit: Visit) -> None:
    """The inspector; what is found by looking without the picture becomes part of the trace file."""

    def save_again(trace: RequestTrace) -> Iterator[Update]:
        with tempfile.TemporaryDirectory() as folder:
            yield {result.download: _download(trace, Path(folder))}

    looked = wire_inspector(result.inspector, visit, running)
    looked.success(save_again, visit.trace, [result.download], **QUIET)


def _shown(result: ResultPart, trace: RequestTrace | None, folder: Path) -> Update:
    """The trace in the inspector and as a file; without one, the words that stand in their place."""
    download = gr.update(visible=False) if trace is None else _download(trace, folder)
    empty = gr.update(visible=trace is None)
    return {result.empty: empty, result.download: download, **show_trace(result.inspector, trace)}


def _download(trace: RequestTrace, folder: Path) -> Any:
    try:
        path, label = save(trace, folder)
    except Exception as error:  # a full disk, say: the run can be looked at all the same
        gr.Warning(sentence(error))
        return gr.update(visible=False)
    return gr.update(value=str(path), visible=True, label=label)
