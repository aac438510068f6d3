"""The inspector on the page: its four tabs, and what happens on them. What they show is made in the modules beside it.

Everything reads from the trace alone. A tab's figures are drawn when it is opened, so an unopened one costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
import plotly

from app import texts
from app.cards import heading, notice
from app.exports import figure_tools, html_table, table_links
from app.figures import (
    acceptance_figure,
    accepted_figure,
    depth_figure,
    hits_figure,
    phases_figure,
    progress_figure,
    sizes_figure,
    speedup_figure,
    split_figure,
)
from app.figures.memories import acceptance_table
from app.inspector import NODE_COLUMNS, inspectable, legend, telling_step, view_step
from app.marks import LANES
from app.race import race_board, steps_table
from app.running import Running
from app.sensitive import Split, heat_legend, heat_strip, pooled, sensitivity_table, split, split_sentence
from app.strips import aligned_strips
from app.why_panel import why_of
from app.wiring import ON_THE_MODEL, QUIET, Update, Visit, sentence
from recap_engine.errors import RecapError
from recap_engine.trace import RequestTrace

SCRIPT = Path(__file__).with_name("inspector.js")
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"  # a saved page brings its own
PLAY_S = 1.0  # seconds a step is shown while playing


@dataclass(frozen=True)
class StepsTab:
    """One step of one lane at a time."""

    nothing: gr.HTML
    area: gr.Column
    aligned: gr.Checkbox
    strip: gr.HTML
    lane: gr.Radio
    step: gr.Slider
    previous: gr.Button
    play: gr.Button
    following: gr.Button
    playing: gr.State
    clock: gr.Timer
    facts: gr.HTML
    tree: gr.Plot
    node: gr.Dropdown
    why: gr.HTML
    nodes: gr.HTML
    save: gr.HTML

    @property
    def views(self) -> list[gr.blocks.Block]:
        """What shows a step."""
        return [self.step, self.facts, self.tree, self.node, self.why, self.nodes, self.save]


@dataclass(frozen=True)
class RaceTab:
    tab: gr.Tab
    board: gr.HTML
    progress: gr.Plot
    phases: gr.Plot
    speedup: gr.Plot
    save: gr.HTML

    @property
    def views(self) -> list[gr.components.Component]:
        return [self.board, self.progress, self.phases, self.speedup, self.save]


@dataclass(frozen=True)
class MemoriesTab:
    tab: gr.Tab
    sizes: gr.Plot
    hits: gr.Plot
    acceptance: gr.Plot
    depths: gr.Plot
    accepted: gr.Plot
    save: gr.HTML

    @property
    def views(self) -> list[gr.components.Component]:
        return [self.sizes, self.hits, self.acceptance, self.depths, self.accepted, self.save]


@dataclass(frozen=True)
class SensitiveTab:
    tab: gr.Tab
    look: gr.Button
    message: gr.HTML
    area: gr.Column
    strip: gr.HTML
    told: gr.HTML
    figure: gr.Plot
    save: gr.HTML

    @property
    def views(self) -> list[gr.blocks.Block]:
        return [self.look, self.message, self.area, self.strip, self.told, self.figure, self.save]


@dataclass(frozen=True)
class Inspector:
    """The whole of it."""

    area: gr.Column
    tabs: gr.Tabs
    steps: StepsTab
    race: RaceTab
    memories: MemoriesTab
    sensitive: SensitiveTab
    script: gr.HTML  # carries `inspector.js`, whose events are `pick`, a token, and `choose`, a node

    @property
    def shown(self) -> list[gr.blocks.Block]:
        """What a new trace changes."""
        steps = self.steps
        return [
            *(self.area, self.tabs, steps.nothing, steps.area, steps.aligned, steps.strip, steps.lane),
            *(steps.playing, steps.clock, steps.play, *steps.views),
        ]


# ---- layout ----------------------------------------------------------------------------------------------------


def lay_out_inspector() -> Inspector:
    gr.set_static_paths([PLOTLY])
    with (
        gr.Column(visible=False, elem_id="inspector") as area,
        gr.Tabs(elem_id="views", overflow_behavior="wrap") as tabs,
    ):
        with gr.Tab("Step by step", id="steps"):
            steps = _lay_out_steps()
        with gr.Tab("Race", id="race") as tab:
            race = _lay_out_race(tab)
        with gr.Tab("Memories", id="memories") as tab:
            memories = _lay_out_memories(tab)
        with gr.Tab("Image-sensitive states", id="sensitive") as tab:
            sensitive = _lay_out_sensitive(tab)
    script = gr.HTML(js_on_load=SCRIPT.read_text(encoding="utf-8"), plotly=str(PLOTLY), elem_id="script")
    return Inspector(area, tabs, steps, race, memories, sensitive, script)


def _figure(name: str, title: str, words: str, tree: bool = False) -> gr.Plot:
    """A figure with its head and its tools; `name` is its element id, and the name of the files it is saved as."""
    with gr.Column(min_width=320, elem_classes="panel"):
        gr.HTML(heading(title, words, level=3))
        plot = gr.Plot(show_label=False, container=False, elem_id=name, elem_classes=["figure"] + ["tree"] * tree)
        gr.HTML(figure_tools(name, f"the figure “{title}”", zoom=tree))
    return plot


def _lay_out_steps() -> StepsTab:
    nothing = gr.HTML(visible=False)
    with gr.Column(elem_id="steps-area") as area:
        gr.HTML(heading("The answer, by where each token came from", texts.STRIP))
        aligned = gr.Checkbox(False, label="All lanes that draft under each other, aligned", elem_id="aligned")
        strip = gr.HTML(elem_id="strip")
        with gr.Row(equal_height=True):
            lane = gr.Radio([], label="Lane", elem_id="lane", scale=10, min_width=250)
            step = gr.Slider(1, 2, value=1, step=1, label="Step", elem_id="step", scale=9, min_width=260)
            with gr.Column(scale=9, min_width=290), gr.Row():
                previous = gr.Button("← Previous", elem_id="previous", size="md", min_width=90)
                play = gr.Button("▶ Play", elem_id="play", size="md", min_width=80)
                following = gr.Button("Next →", elem_id="next", size="md", min_width=90)
        playing, clock = gr.State(False), gr.Timer(PLAY_S, active=False)
        facts = gr.HTML(elem_id="facts")
        tree = _figure("tree", "The candidate tree", texts.TREE, tree=True)
        gr.HTML(heading("Why this candidate?", texts.WHY))
        node = gr.Dropdown([], label="Candidate", elem_id="node", filterable=True)
        why = gr.HTML(elem_id="why")
        with gr.Accordion("The nodes of this step as a table", open=False):
            nodes = gr.HTML(elem_id="nodes")
            save = gr.HTML(elem_id="nodes-save")
    return StepsTab(
        *(nothing, area, aligned, strip, lane, step, previous, play, following, playing, clock, facts, tree, node),
        *(why, nodes, save),
    )


def _lay_out_race(tab: gr.Tab) -> RaceTab:
    gr.HTML(heading("The race, once more", texts.RACE))
    board = gr.HTML(elem_id="race")
    with gr.Row():
        progress = _figure("progress", "Tokens against time", "Steeper is faster. One stair is one step.")
        phases = _figure("phases", "Where the time went", "All steps of a lane together, by phase.")
    speedup = _figure("speedup", "Speedup over AR so far", texts.SPEEDUP)
    save = gr.HTML(elem_id="steps-save")
    return RaceTab(tab, board, progress, phases, speedup, save)


def _lay_out_memories(tab: gr.Tab) -> MemoriesTab:
    with gr.Row():
        sizes = _figure("sizes", "What the memories hold", texts.SIZES)
        hits = _figure("hits", "What the keys found", texts.HITS)
    with gr.Row():
        acceptance = _figure("acceptance", "Accepted, by source and scope", texts.ACCEPTANCE)
        depths = _figure("depths", "Accepted, by depth", texts.DEPTHS)
    accepted = _figure("accepted", "How many a step accepts", "The bonus token comes on top, in every step.")
    save = gr.HTML(elem_id="acceptance-save")
    return MemoriesTab(tab, sizes, hits, acceptance, depths, accepted, save)


def _lay_out_sensitive(tab: gr.Tab) -> SensitiveTab:
    gr.HTML(heading("Where the picture matters", texts.SENSITIVE))
    look = gr.Button("Look without the picture", variant="primary", elem_id="look")
    message = gr.HTML(elem_id="look-message")
    with gr.Column(visible=False) as area:
        strip = gr.HTML(elem_id="heat")
        gr.HTML(heat_legend())
        told = gr.HTML()
        figure = _figure("split", "Drafts accepted where the picture matters, and elsewhere", texts.SPLIT)
        save = gr.HTML(elem_id="sensitivity-save")
    return SensitiveTab(tab, look, message, area, strip, told, figure, save)


# ---- what is shown ---------------------------------------------------------------------------------------------


def show_trace(inspector: Inspector, trace: RequestTrace | None) -> Update:
    """The inspector opened at the most telling step of the first lane that drafted."""
    if trace is None:
        return {inspector.area: gr.update(visible=False)}
    steps, names = inspector.steps, inspectable(trace)
    shown: Update = {
        inspector.area: gr.update(visible=True),
        inspector.tabs: gr.Tabs(selected="steps"),
        steps.nothing: gr.update(value=notice(texts.NO_TREES), visible=not names),
        steps.area: gr.update(visible=bool(names)),
        **_stopped(steps),
    }
    if names:
        choices = [(LANES[name].name, name) for name in names]
        shown[steps.lane] = gr.update(choices=choices, value=names[0])
        shown[steps.aligned] = gr.update(value=False, visible=len(names) > 1)
        shown[steps.strip] = _strip(trace, names[0], telling_step(trace.lanes[names[0]]) + 1, aligned=False)
        shown |= dict(zip(steps.views, _open_lane(trace, names[0]), strict=True))
    return shown


def _stopped(steps: StepsTab) -> Update:
    """Not playing."""
    return {steps.playing: False, steps.clock: gr.Timer(active=False), steps.play: "▶ Play"}


def _open_lane(trace: RequestTrace, lane: str) -> Sequence[Any]:
    """The slider fitted to a lane, and the views of its most telling step."""
    at = telling_step(trace.lanes[lane]) + 1
    _, *views = _step_views(trace, lane, at)
    return [gr.update(maximum=max(2, trace.lanes[lane].n_steps), value=at), *views]


def _step_views(trace: RequestTrace, lane: str, at: int) -> Sequence[Any]:
    """The values of `StepsTab.views` for step `at`, counted from 1."""
    view = view_step(trace, lane, at - 1)
    why = why_of(trace, lane, at - 1, view.node)
    save = table_links(view.nodes, f"recap-nodes-{lane}-step-{at}", "the nodes of this step")
    nodes = html_table(NODE_COLUMNS, view.nodes.itertuples(index=False), "The nodes of this step", choose=True)
    return [at, view.facts, view.tree, gr.update(choices=view.choices, value=view.node), why, nodes, save]


def _strip(trace: RequestTrace, lane: str, at: int, aligned: bool) -> str:
    """The answer of one lane, or of all that drafted, with the legend of what is to be seen in strip and tree."""
    names = inspectable(trace) if aligned else [lane]
    strips = aligned_strips([trace.lanes[name] for name in names], lane, at - 1, trace.token_text)
    return strips + legend(names)


# ---- events ----------------------------------------------------------------------------------------------------


def wire_inspector(inspector: Inspector, visit: Visit, running: Running) -> gr.events.Dependency:
    """All events of the inspector. Returns the one that adds a sensitivity to the trace."""
    _wire_steps(inspector.steps, inspector.script, visit)
    _wire_race(inspector.race, visit)
    _wire_memories(inspector.memories, visit)
    return _wire_sensitive(inspector.sensitive, visit, running)


def _wire_steps(steps: StepsTab, script: gr.HTML, visit: Visit) -> None:
    """Slider, buttons, keys, clock and tokens show a step. A dragged slider asks for the latest only."""
    given = [visit.trace, steps.lane, steps.step]

    def known(trace: RequestTrace | None, lane: str) -> bool:
        return trace is not None and lane in trace.lanes

    def show_step(trace: RequestTrace, lane: str, step: float, by: int = 0) -> Update:
        if not known(trace, lane):
            return gr.skip()
        at = min(max(int(step) + by, 1), trace.lanes[lane].n_steps)
        shown = dict(zip(steps.views, _step_views(trace, lane, at), strict=True))
        if not by:
            del shown[steps.step]  # it is where the visitor has put it
        return shown

    def show_previous(trace: RequestTrace, lane: str, step: float) -> Update:
        return show_step(trace, lane, step, by=-1)

    def show_next(trace: RequestTrace, lane: str, step: float) -> Update:
        return show_step(trace, lane, step, by=1)

    def open_lane(trace: RequestTrace, lane: str, aligned: bool) -> Update:
        if not known(trace, lane):
            return gr.skip()
        shown = dict(zip(steps.views, _open_lane(trace, lane), strict=True))
        return shown | {steps.strip: _strip(trace, lane, telling_step(trace.lanes[lane]) + 1, aligned)}

    def open_token(trace: RequestTrace, lane: str, event: gr.EventData) -> Update:
        picked, at = str(event.lane), int(event.step) + 1
        if not known(trace, picked) or not 1 <= at <= trace.lanes[picked].n_steps:
            return gr.skip()
        shown = dict(zip(steps.views, _step_views(trace, picked, at), strict=True))
        if picked != lane:
            slider = gr.update(maximum=max(2, trace.lanes[picked].n_steps), value=at)
            shown |= {steps.lane: picked, steps.step: slider}
        return shown

    def align(trace: RequestTrace, lane: str, step: float, aligned: bool) -> Any:
        return _strip(trace, lane, int(step), aligned) if known(trace, lane) else gr.skip()

    def choose_node(trace: RequestTrace, lane: str, step: float, node: int | None) -> Update:
        if not known(trace, lane) or node is None:
            return gr.skip()
        if node not in range(len(trace.lanes[lane].steps[int(step) - 1].tokens) + 1):
            return gr.skip()
        return {steps.node: node, steps.why: why_of(trace, lane, int(step) - 1, node)}

    def choose_point(trace: RequestTrace, lane: str, step: float, event: gr.EventData) -> Update:
        return choose_node(trace, lane, step, int(event.node))

    def toggle(trace: RequestTrace, lane: str, step: float, playing: bool) -> Update:
        if playing or not known(trace, lane):
            return _stopped(steps)
        started: Update = {steps.playing: True, steps.clock: gr.Timer(active=True), steps.play: "❚❚ Pause"}
        at_end = int(step) >= trace.lanes[lane].n_steps
        return started | (show_step(trace, lane, 0, by=1) if at_end else {})

    def tick(trace: RequestTrace, lane: str, step: float) -> Update:
        if not known(trace, lane) or int(step) >= trace.lanes[lane].n_steps:
            return _stopped(steps)
        return show_step(trace, lane, step, by=1)

    control: list[gr.blocks.Block] = [steps.playing, steps.clock, steps.play]
    steps.step.input(show_step, given, steps.views, trigger_mode="always_last", **QUIET)
    steps.previous.click(show_previous, given, steps.views, **QUIET)
    steps.following.click(show_next, given, steps.views, **QUIET)
    steps.lane.input(open_lane, [visit.trace, steps.lane, steps.aligned], [*steps.views, steps.strip], **QUIET)
    steps.aligned.input(align, [*given, steps.aligned], steps.strip, **QUIET)
    steps.play.click(toggle, [*given, steps.playing], [*control, *steps.views], **QUIET)
    steps.clock.tick(tick, given, [*control, *steps.views], trigger_mode="once", **QUIET)
    steps.node.input(choose_node, [*given, steps.node], [steps.node, steps.why], **QUIET)
    script.choose(choose_point, given, [steps.node, steps.why], **QUIET)
    script.pick(open_token, given[:2], [steps.lane, *steps.views], **QUIET)


def _wire_race(race: RaceTab, visit: Visit) -> None:
    def show_race(trace: RequestTrace | None) -> Sequence[Any]:
        if trace is None:
            return [gr.skip() for _ in race.views]
        save = table_links(steps_table(trace), "recap-steps", "the steps of all lanes")
        return [race_board(trace), progress_figure(trace), phases_figure(trace), speedup_figure(trace), save]

    race.tab.select(show_race, visit.trace, race.views, **QUIET)


def _wire_memories(memories: MemoriesTab, visit: Visit) -> None:
    def show_memories(trace: RequestTrace | None) -> Sequence[Any]:
        if trace is None:
            return [gr.skip() for _ in memories.views]
        figures = [
            draw(trace) for draw in (sizes_figure, hits_figure, acceptance_figure, depth_figure, accepted_figure)
        ]
        return [*figures, table_links(acceptance_table(trace), "recap-acceptance", "the counts of acceptance")]

    memories.tab.select(show_memories, visit.trace, memories.views, **QUIET)


def _wire_sensitive(tab: SensitiveTab, visit: Visit, running: Running) -> gr.events.Dependency:
    def show(trace: RequestTrace | None, asked: Any, pool: dict[str, Split]) -> Sequence[Any]:
        """The tab as it is now: what was found, or why there is nothing to see yet."""
        if trace is None:
            return [gr.skip() for _ in tab.views]
        if trace.sensitivity is None:
            reason = "" if asked else texts.SENSITIVITY_NEEDS_RUN
            reason = texts.SENSITIVITY_NEEDS_PICTURE if trace.image_sha is None else reason
            look = gr.update(visible=True, interactive=not reason)
            return [look, notice(reason), gr.update(visible=False), *[gr.skip() for _ in tab.views[3:]]]
        own = split(trace)
        groups = {"this answer": own}
        if len(pool) > 1:
            groups[f"this visit, {len(pool)} answers"] = pooled(pool.values())
        return [
            gr.update(visible=False),
            notice(f"{trace.sensitivity.without} {texts.SENSITIVITY_LIMITS}"),
            gr.update(visible=True),
            heat_strip(trace),
            split_sentence(own),
            split_figure(groups),
            table_links(sensitivity_table(trace), "recap-sensitivity", "the states of this answer"),
        ]

    def show_sensitive(trace: RequestTrace | None, asked: Any, pool: dict[str, Split]) -> Sequence[Any]:
        if trace is not None and trace.sensitivity is not None:
            pool = pool | {_answer_key(trace): split(trace)}
        return [pool, *show(trace, asked, pool)]

    def look(trace: RequestTrace | None, asked: Any) -> Any:
        """The same trace with the sensitivity that the engine finds."""
        if trace is None or asked is None:
            return gr.skip(), notice(texts.SENSITIVITY_NEEDS_RUN)
        try:
            if running.serving.engine().model_name != trace.model:
                raise RecapError(texts.SENSITIVITY_NEEDS_ITS_MODEL)
            reference = next(iter(trace.lanes.values()))
            found = running.look(asked, reference.tokens)
            return replace(trace, sensitivity=found), ""
        except Exception as error:
            return gr.skip(), notice(sentence(error), "bad")

    given = [visit.trace, visit.asked, visit.pool]
    changed = [visit.pool, *tab.views]
    tab.tab.select(show_sensitive, given, changed, **QUIET)
    looked = tab.look.click(look, given[:2], [visit.trace, tab.message], show_progress_on=tab.message, **ON_THE_MODEL)
    looked.success(show_sensitive, given, changed, **QUIET)
    return looked


def _answer_key(trace: RequestTrace) -> str:
    """Tells one answer of a visit from another."""
    return f"{trace.created} {trace.image_sha} {trace.question}"
