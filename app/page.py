"""Layout of the page, nothing else: what happens on it is in `events.py`, what is shown in the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr

from app import texts
from app.api import wire_api
from app.bench_view import lay_out_bench, wire_bench
from app.cards import empty_cards, masthead, notice
from app.events import (
    AskPart,
    ResultPart,
    wire_opening,
    wire_pictures,
    wire_result,
    wire_run,
)
from app.files import Opened
from app.inspector_view import lay_out_inspector
from app.lanes import StopFlag
from app.lesson_view import lay_out_lesson, wire_lesson
from app.marks import DEFAULT_LANES, LANES
from app.memory_panel import lay_out_memory, wire_memory
from app.models_view import lay_out_models, wire_models
from app.pictures import ReadyExample, read_examples, take_only_uploads
from app.running import Running
from app.serving import Serving
from app.space import Choice
from app.wiring import Visit

MOST_WAITING = 64  # in the queue; whoever comes then is told that the page is busy
BUDGETS: list[str | int] = ["auto", 8, 16, 24, 32, 48, 64, 80]


def build_page(
    serving: Serving, opened: Opened | None = None, choice: Choice = Choice.FOLDERS, running: Running | None = None
) -> gr.Blocks:
    """The page as gradio Blocks. `serving` has the engine once its model is loaded; the page opens before that.

    `opened` is a saved trace to begin with; `choice` says which models a visitor may load; `running` says with whose
    memories requests run, everybody's unless it is given.
    """
    running = running or Running(serving)
    with gr.Blocks(title=texts.TITLE, analytics_enabled=False, delete_cache=(3600, 86400)) as page:
        visit = Visit(
            trace=gr.State(None),
            asked=gr.State(None),
            pool=gr.State({}),
            stop=gr.State(StopFlag()),
            turn=gr.State(0),
        )
        head = gr.HTML(masthead("loading", texts.LOADING_CHIP))
        examples = read_examples()
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Ask", id="ask"):
                ask = _lay_out_ask(examples)
                result = _lay_out_result()
                _lay_out_help()
            with gr.Tab("Lesson", id="lesson") as lesson_tab:
                lesson = lay_out_lesson(lesson_tab)
            with gr.Tab("Benchmark", id="benchmark"):
                bench = lay_out_bench()
            with gr.Tab("Models", id="models") as models_tab:
                models = lay_out_models(models_tab, choice)

        wire_models(page, head, models, [ask.run.click, ask.question.submit], serving, choice)
        wire_pictures(ask, examples)
        ran = wire_run(ask, result, running, visit)
        wire_memory(page, ask.memory, ask.message, ran, running)
        wire_opening(page, ask, result, visit, opened)
        wire_result(result, running, visit)
        wire_lesson(lesson)
        wire_bench(bench, running)
        wire_api(ask, running)
    page.queue(max_size=MOST_WAITING, api_open=False)  # no call gets past the queue
    return page


def _lay_out_ask(examples: Sequence[ReadyExample]) -> AskPart:
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            picture = gr.Image(label="Picture", type="filepath", format="png", height=330, elem_id="picture")
            take_only_uploads(picture)
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
            gallery = gr.Gallery(
                [(str(example.picture), example.family) for example in examples],
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
                    [(mark.name, name) for name, mark in LANES.items()],
                    value=list(DEFAULT_LANES),
                    label="Lanes",
                    info=texts.VARIANT,
                )
                memory = lay_out_memory()
            upload = gr.UploadButton("Open a saved trace", size="sm", elem_id="open")
            take_only_uploads(upload)

    return AskPart(picture, question, draw, scene, gallery, run, stop, message, limit, budget, lanes, memory, upload)


def _lay_out_result() -> ResultPart:
    cards = gr.HTML(empty_cards(DEFAULT_LANES), elem_id="cards")
    told = gr.HTML(elem_id="verdict")
    empty = gr.HTML(texts.BEFORE_FIRST_RUN)
    inspector = lay_out_inspector()
    download = gr.DownloadButton("Save the trace", visible=False, elem_id="download")
    return ResultPart(cards, told, empty, inspector, download)


def _lay_out_help() -> None:
    with gr.Accordion("How to read this page", open=False):
        gr.Markdown(texts.HOW_TO_READ)
    with gr.Accordion("What the model can read, and how to choose another", open=False):
        gr.Markdown(texts.EMBEDDED_MODEL + texts.HUB_MODEL + texts.PICTURE_BOUNDS)
