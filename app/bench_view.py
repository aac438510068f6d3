"""The tab "Benchmark": a short run of the bench on drawn pictures, its tables and figures, and a saved run opened."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
import pandas as pd
import plotly.graph_objects as go

from app import texts
from app.cards import heading, notice
from app.figures.base import CLEAR, GRID, SANS
from app.lanes import StopFlag
from app.marks import NEUTRAL
from app.running import Running
from app.wiring import ON_THE_MODEL, QUIET, Update, sentence
from recap_engine.bench import html
from recap_engine.bench.ratios import rows
from recap_engine.bench.report import CELLS, Table, by_suite, overview, sentences, write
from recap_engine.bench.results import Folder, Measurement, Setting, unpack
from recap_engine.errors import RecapError
from recap_engine.scenes import FAMILIES, TWO_TURN
from recap_engine.settings import Settings

if TYPE_CHECKING:
    from recap_engine.bench.session import Progress, Session
    from recap_engine.engine import Engine
    from recap_engine.stepcost import StepCost

LANES = list(html.COLOURS)
USUAL = ["generate", "prompt-lookup", "ar", "tr", "recap", "recap+", "oracle"]
LEAST_CASES = 2  # of a suite: one tells nothing of the spread
MOST_CASES = 5  # of a suite: all visitors wait meanwhile
FIRST_SEED = 1000
FILES = {"report.html": "Save the report", "table.csv": "Save the table (CSV)", "run.json": "Save the run (JSON)"}


@dataclass(frozen=True)
class BenchTab:
    """What is asked for, and what is shown of it."""

    suites: gr.CheckboxGroup
    lanes: gr.CheckboxGroup
    cases: gr.Slider
    limit: gr.Slider
    run: gr.Button
    stop: gr.Button
    measure: gr.Button
    upload: gr.UploadButton
    told: gr.HTML
    empty: gr.HTML
    result: gr.Column
    table: gr.Dataframe
    suites_table: gr.Dataframe
    sentences: gr.HTML
    figures: list[gr.Plot]
    cost: gr.Plot
    files: list[gr.DownloadButton]
    stopping: gr.State


# ---- layout ----------------------------------------------------------------------------------------------------


def lay_out_bench() -> BenchTab:
    gr.HTML(heading("How much faster, on many questions?", texts.BENCH))
    suites = gr.CheckboxGroup(
        [*FAMILIES, TWO_TURN], value=list(FAMILIES), label="Suites of drawn pictures", elem_id="bench-suites"
    )
    lanes = gr.CheckboxGroup(
        LANES, value=USUAL, label="Lanes", info="AR joins in any case: it is what the others are compared with."
    )
    with gr.Row():
        cases = gr.Slider(
            LEAST_CASES, MOST_CASES, value=LEAST_CASES, step=1, label="Pictures of each suite", elem_id="bench-cases"
        )
        limit = gr.Slider(8, 512, value=200, step=8, label="Most new tokens", elem_id="bench-limit")
    with gr.Row():
        run = gr.Button("Run the benchmark", variant="primary", elem_id="bench-run", min_width=150)
        stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="bench-stop", min_width=90)
        measure = gr.Button("Measure the step cost alone", elem_id="bench-measure", min_width=150)
        upload = gr.UploadButton("Open a saved run", file_types=[".json"], elem_id="bench-open", min_width=150)
    told = gr.HTML(elem_id="bench-told")
    empty = gr.HTML(texts.BEFORE_FIRST_BENCH)
    with gr.Column(visible=False, elem_id="bench-result") as result:
        gr.HTML(heading("Speed over plain decoding", html.HOW_TO_READ, level=3))
        table = gr.Dataframe(show_label=False, interactive=False, wrap=True, elem_id="bench-table")
        figures = [gr.Plot(show_label=False, elem_id=f"bench-{name}") for name in ("lanes", "by-suite", "requests")]
        gr.HTML(heading("Suite by suite", CELLS, level=3))
        suites_table = gr.Dataframe(show_label=False, interactive=False, elem_id="bench-by-suite-table")
        told_of = gr.HTML(elem_id="bench-sentences")
        with gr.Row():
            files = [
                gr.DownloadButton(label, size="sm", elem_id=f"bench-save-{name.partition('.')[2]}")
                for name, label in FILES.items()
            ]
    cost = gr.Plot(show_label=False, visible=False, elem_id="bench-cost")
    return BenchTab(
        suites, lanes, cases, limit, run, stop, measure, upload, told, empty, result, table, suites_table, told_of,
        figures, cost, files, gr.State(StopFlag()),
    )  # fmt: skip


# ---- what is shown ---------------------------------------------------------------------------------------------


def on_page(figure: go.Figure) -> go.Figure:
    """A figure of the report with the page's look: on a clear ground, so that it suits light and dark."""
    figure.update_layout(
        template="none",
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        dragmode=False,
        margin={"l": 8, "r": 16, "t": 100, "b": 8},
        font={"family": SANS, "size": 12, "color": NEUTRAL},
        title={"x": 0, "xanchor": "left", "yref": "container", "y": 0.97, "font": {"size": 14}},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    figure.update_xaxes(fixedrange=True, automargin=True, gridcolor=GRID, zeroline=False)
    return figure.update_yaxes(fixedrange=True, automargin=True, gridcolor=GRID, zeroline=False)


def revealed(tab: BenchTab) -> Update:
    """The result's place, to be shown before it is filled: a figure that comes while it is hidden may not be drawn."""
    return {tab.empty: gr.update(visible=False), tab.result: gr.update(visible=True)}


def shown(tab: BenchTab, setting: Setting, measurements: Sequence[Measurement], folder: Path) -> Update:
    """A run's tables, figures and files; the files are written into `folder`."""
    found = rows(measurements)
    drawn = [html.lanes_figure(found), html.suites_figure(found), html.requests_figure(measurements)]
    lines = "".join(f"<li>{escape(line)}</li>" for line in sentences(setting, measurements))
    write(Folder(folder), setting, measurements)
    return {
        tab.table: frame(overview(found)),
        tab.suites_table: frame(by_suite(found)),
        tab.sentences: f'<ul class="facts">{lines}</ul>',
        **dict(zip(tab.figures, map(on_page, drawn), strict=True)),
        **{file: str(folder / name) for file, name in zip(tab.files, FILES, strict=True)},
        tab.cost: cost_update(setting.cost),
    }


def cost_update(cost: StepCost | None) -> Any:
    return gr.update(value=on_page(html.cost_figure(cost)), visible=True) if cost else gr.update(visible=False)


def frame(table: Table) -> pd.DataFrame:
    return pd.DataFrame(table[1:], columns=table[0])


def progress_words(progress: Progress) -> str:
    """How far a run is, as HTML."""
    bar = f'<progress max="{progress.total}" value="{progress.done}" aria-label="Done"></progress>'
    return f'<p class="notice info">{progress}{bar}</p>'


# ---- events ----------------------------------------------------------------------------------------------------


def wire_bench(tab: BenchTab, running: Running) -> None:
    """A run has the model to itself, in the queue that all runs wait in; Stop ends it after the lane at hand."""

    def engine_here() -> Engine:
        if running.forked:
            raise RecapError(texts.BENCH_NOT_HERE)
        return running.serving.engine()

    def run(
        suites: Sequence[str], lanes: Sequence[str], cases: float, limit: float, flag: StopFlag
    ) -> Iterator[Update]:
        flag.pressed = False
        yield {tab.run: gr.update(interactive=False), tab.stop: gr.update(interactive=True), tab.told: ""}
        try:
            if not suites:
                raise RecapError(texts.NO_SUITES)
            yield {tab.told: notice(texts.BENCH_BEGINS)}
            session = begin(engine_here(), suites, lanes, int(cases), int(limit), flag)
            for progress in session.run():
                yield {tab.told: progress_words(progress)}
            if not session.measurements:
                raise RecapError(texts.BENCH_STOPPED)
            yield revealed(tab)
            with tempfile.TemporaryDirectory() as folder:  # gradio copies the files out of it before this resumes
                yield shown(tab, session.setting, session.measurements, Path(folder))
            told = notice(texts.BENCH_PARTLY if flag.pressed else texts.BENCH_DONE, "info" if flag.pressed else "good")
        except Exception as error:
            told = notice(sentence(error), "bad")
        yield {tab.run: gr.update(interactive=True), tab.stop: gr.update(interactive=False), tab.told: told}

    def measure() -> Iterator[Update]:
        try:
            yield {tab.told: notice(texts.MEASURING_COST)}
            yield {tab.cost: cost_update(engine_here().step_cost), tab.told: notice(texts.COST_DONE, "good")}
        except Exception as error:
            yield {tab.told: notice(sentence(error), "bad")}

    def open_run(path: str) -> Iterator[Update]:
        try:
            setting, measurements = unpack(Path(path))
            yield revealed(tab)
            with tempfile.TemporaryDirectory() as folder:
                yield shown(tab, setting, measurements, Path(folder)) | {
                    tab.told: notice(opened_words(setting), "good")
                }
        except Exception as error:
            yield {tab.told: notice(sentence(error), "bad")}

    def press_stop(flag: StopFlag) -> None:
        flag.pressed = True

    changed = [
        tab.told, tab.empty, tab.result, tab.table, tab.suites_table, tab.sentences, *tab.figures, *tab.files, tab.cost,
    ]  # fmt: skip
    given = [tab.suites, tab.lanes, tab.cases, tab.limit, tab.stopping]
    told: dict[str, Any] = {"show_progress": "hidden"}
    tab.run.click(run, given, [tab.run, tab.stop, *changed], **told, **ON_THE_MODEL)
    tab.measure.click(measure, outputs=[tab.told, tab.cost], **told, **ON_THE_MODEL)
    tab.stop.click(press_stop, tab.stopping, queue=False, api_visibility="private")  # it must overtake the run
    tab.upload.upload(open_run, tab.upload, changed, **QUIET)


def begin(
    engine: Engine, suites: Sequence[str], lanes: Sequence[str], cases: int, limit: int, flag: StopFlag
) -> Session:
    """A session on drawn pictures, with memories of its own."""
    from recap_engine.bench.session import Session  # needs torch
    from recap_engine.bench.suites import drawn

    asked = {"suites": list(suites), "count": cases, "first_seed": FIRST_SEED, "max_new_tokens": limit}
    return Session(
        engine,
        [drawn(name, min(cases, MOST_CASES), FIRST_SEED) for name in suites],
        list(lanes),
        Settings(max_new_tokens=limit, record=False),
        Setting({**asked, "lanes": list(lanes), "model": engine.model_name}, dict(engine.machine)),
        stopped=lambda: flag.pressed,
    )


def opened_words(setting: Setting) -> str:
    """What was opened, in a sentence."""
    device, dtype = (setting.machine.get(name, "an unknown one") for name in ("device", "dtype"))
    return f"Opened a run of {setting.options.get('model', 'a model')!s:.80}, on {device!s:.60} in {dtype!s:.20}."
