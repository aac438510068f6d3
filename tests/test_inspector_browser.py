"""The inspector in a real browser, on a made-up trace played by a made-up engine: no model, so it is quick."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from app_fakes import FakeEngine, make_trace
from browser import served, visit

from app.page import build_page
from app.serving import Serving


class Inspected:
    """A browser page with a finished run, and what it was run from."""

    def __init__(self, page, trace):
        self.page, self.trace = page, trace

    def __getattr__(self, name):
        return getattr(self.page, name)

    @property
    def at(self):
        """The lane and the step that are shown, the step counted from 0."""
        facts = self.page.locator("#facts [data-step]")
        return facts.get_attribute("data-lane"), int(facts.get_attribute("data-step"))

    def wait_at(self, lane, step):
        self.page.wait_for_selector(f'#facts [data-lane="{lane}"][data-step="{step}"]')

    def wait_node(self, node):
        self.page.wait_for_selector(f'#why [data-node="{node}"]')

    def trace_of(self, name):
        """One trace of the tree's figure as plotly holds it."""
        given = "name => document.querySelector('#tree .js-plotly-plot').data.find(trace => trace.name === name)"
        return self.page.evaluate(given, name)

    def open_tab(self, name):
        self.page.get_by_role("tab", name=name).click()


@pytest.fixture(scope="module")
def address():
    trace = make_trace(nodes=40, steps=12, plus=True)
    trace.token_text |= {0: "<img src=x onerror=\"document.title='owned'\">", 1: "</script><b>"}
    with served(build_page(Serving(FakeEngine(trace)))) as url:
        yield url, trace


@contextmanager
def run(address, width=1280, theme="light", plus=False):
    """A fresh visitor who asked something, `plus` RECAP+; the test fails on any script error."""
    url, trace = address
    with visit(f"{url}?__theme={theme}", width) as page:
        page.fill("#question textarea", "What is it?")
        if plus:
            page.get_by_role("button", name="Settings").click()
            page.get_by_label("RECAP+").check()
        page.click("#run")
        page.wait_for_selector("#tree .js-plotly-plot[data-known]")
        page.wait_for_selector("#strip .now")
        yield Inspected(page, trace)
        assert page.title() != "owned"


def test_a_token_opens_its_step_and_keys_buttons_and_play_move_on(address):
    with run(address) as page:
        lane = page.trace.lanes["recap"]
        page.click('#strip [data-lane="recap"][data-step="4"] >> nth=0')
        page.wait_at("recap", 4)
        assert page.locator("#strip .now").count() == len(lane.steps[4].emitted)
        page.wait_for_function("document.querySelector('#tree .js-plotly-plot').data.find(t => t.name == 'nodes')")
        assert page.trace_of("nodes")["x"] == lane.steps[4].depths
        assert page.locator("#step input[type=number]").input_value() == "5"

        page.keyboard.press("ArrowRight")  # the focus is on the token
        page.wait_at("recap", 5)
        page.keyboard.press("ArrowLeft")
        page.wait_at("recap", 4)
        assert page.evaluate("document.activeElement.dataset.step") == "4"
        page.click("#next")
        page.wait_at("recap", 5)
        page.click("#previous")
        page.wait_at("recap", 4)
        page.locator("#step input[type=range]").focus()
        page.keyboard.press("ArrowRight")
        page.wait_at("recap", 5)

        page.click("#play")
        page.wait_at("recap", 7)
        page.click("#play")
        page.wait_for_function("document.querySelector('#play').innerText.includes('Play')")


def test_the_lanes_stand_aligned_and_a_token_of_the_other_opens_its_lane(address):
    with run(address) as page:
        page.get_by_label("under each other").check()
        page.wait_for_selector('#strip [data-lane="tr"]')
        left = (
            "([lane, at]) => document.querySelectorAll(`#strip [data-lane=${lane}]`)[at].getBoundingClientRect().left"
        )
        for at in (0, 3, 9):
            assert page.evaluate(left, ["tr", at]) == page.evaluate(left, ["recap", at])
        page.click('#strip [data-lane="tr"][data-step="2"] >> nth=0')
        page.wait_at("tr", 2)
        assert page.locator("#lane input:checked").input_value() == "tr"
        assert page.locator("#strip .now").count() == len(page.trace.lanes["tr"].steps[2].emitted)


def test_recap_plus_is_a_fourth_lane_with_its_own_marks(address):
    with run(address, plus=True) as page:
        assert page.locator("#cards [data-lane]").count() == 4
        page.get_by_label("under each other").check()
        page.wait_for_selector('#strip [data-lane="recap+"]')
        assert page.locator("#strip .legend .outlives").all_inner_texts() == [
            "2-gram, persistent",
            "3-gram, persistent",
        ]
        page.click('#strip [data-lane="recap+"][data-step="2"] >> nth=0')
        page.wait_at("recap+", 2)
        page.wait_for_function(
            "document.querySelector('#tree .js-plotly-plot').data.find(t => t.name == 'nodes').marker.symbol"
            ".includes('triangle-up')"
        )
        assert page.locator("#strip .now").count() == len(page.trace.lanes["recap+"].steps[2].emitted)
        page.open_tab("Race")
        page.click("[data-race-play]")
        page.wait_for_function("document.querySelector('[data-runner=\"recap+\"] [data-count]').innerText > 1")


def test_a_node_is_explained_from_the_tree_the_list_and_the_table(address):
    with run(address) as page:
        _, number = page.at
        step = page.trace.lanes["recap"].steps[number]
        rejected = step.decisions.index("rejected")
        page.locator("#tree").scroll_into_view_if_needed()
        at = page.evaluate(
            """node => {
                const plot = document.querySelector('#tree .js-plotly-plot');
                const nodes = plot.data.find(trace => trace.name === 'nodes');
                const box = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
                const along = (axis, value) => axis._offset + axis.d2p(value);
                return [box.left + along(xaxis, nodes.x[node]), box.top + along(yaxis, nodes.y[node])];
            }""",
            rejected,
        )
        page.mouse.move(*at)
        page.mouse.click(*at)
        page.wait_node(rejected)
        assert "was rejected" in page.inner_text("#why")
        page.wait_for_function(
            """node => {
                const data = document.querySelector('#tree .js-plotly-plot').data;
                const [halo, nodes] = ['halo', 'nodes'].map(name => data.find(trace => trace.name === name));
                return halo.x[0] === nodes.x[node] && halo.y[0] === nodes.y[node];
            }""",
            arg=rejected,
        )

        page.fill("#node input", "bonus token")
        page.keyboard.press("Enter")
        page.wait_node("bonus")
        assert "Why not" in page.inner_text("#why")

        page.get_by_role("button", name="The nodes of this step as a table").click()
        page.click("#nodes tr[data-row='1']")
        page.wait_node(1)


def test_the_race_is_replayed_from_the_trace(address):
    with run(address) as page:
        page.open_tab("Race")
        page.wait_for_selector(".race[data-race]")
        for plot in ("progress", "phases", "speedup"):
            page.wait_for_selector(f"#{plot} .js-plotly-plot .main-svg")
        page.select_option("[data-race-speed]", "5")
        page.click("[data-race-play]")
        count = "Number(document.querySelector('[data-runner=recap] [data-count]').innerText)"
        total = page.trace.lanes["recap"].n_tokens
        page.wait_for_function(f"{count} > 1 && {count} < {total}")
        page.click("[data-race-play]")
        words = page.inner_text("[data-runner=recap] [data-words]")
        assert page.trace.lanes["recap"].text.startswith(words.rstrip("\n")[:5])
        page.click("[data-race-play]")
        page.wait_for_function(f"{count} === {total}")
        page.wait_for_function("document.querySelectorAll('.runner.finished').length === 3")
        page.locator("[data-race-at]").fill("0")
        assert page.inner_text("[data-runner=ar] [data-count]") == "1"


def test_the_memories_and_the_image_sensitive_states_are_drawn(address):
    with run(address) as page:
        page.open_tab("Memories")
        for plot in ("sizes", "hits", "acceptance", "depths", "accepted"):
            page.wait_for_selector(f"#{plot} .js-plotly-plot .main-svg")
        page.open_tab("Image-sensitive states")
        page.click("#look")
        page.wait_for_selector("#heat .token")
        assert page.locator("#heat .token").count() == len(page.trace.sensitivity.kl)
        assert page.locator("#heat .changed").count() == sum(page.trace.sensitivity.changed)
        page.wait_for_selector("#split .js-plotly-plot .main-svg")
        page.open_tab("Step by step")
        page.wait_for_selector("#tree .js-plotly-plot[data-known]")


def test_figures_and_tables_are_saved(address):
    with run(address) as page:

        def saved(click):
            with page.expect_download() as download:
                page.evaluate("selector => document.querySelector(selector).click()", click)
            return download.value.suggested_filename, Path(download.value.path()).read_bytes()

        name, data = saved('[data-figure=tree][data-save="png"]')
        assert name == "recap-tree.png" and data.startswith(b"\x89PNG")
        name, data = saved('[data-figure=tree][data-save="svg"]')
        assert name == "recap-tree.svg" and b"<svg" in data and b"2-gram, local" in data
        name, data = saved('[data-figure=tree][data-save="html"]')
        assert name == "recap-tree.html" and len(data) > 1_000_000
        alone = page.context.browser.new_page()
        alone.set_content(data.decode())
        alone.wait_for_selector(".js-plotly-plot .point")
        assert alone.title() == "RECAP Inspector: tree"
        alone.close()

        page.get_by_role("button", name="The nodes of this step as a table").click()
        page.wait_for_selector("#nodes-save a")
        _, number = page.at
        step = page.trace.lanes["recap"].steps[number]
        name, data = saved('#nodes-save a[download$=".csv"]')
        assert name == f"recap-nodes-recap-step-{number + 1}.csv"
        assert len(data.decode().splitlines()) == 1 + len(step.tokens)
        name, data = saved('#nodes-save a[download$=".json"]')
        assert [row["decision"] for row in json.loads(data)] == step.decisions


def test_a_tree_zooms_and_a_narrow_page_never_scrolls_sideways(address):
    with run(address, width=390) as page:
        sideways = "document.documentElement.scrollWidth"
        width = "document.querySelector('#tree .js-plotly-plot').getBoundingClientRect().width"
        assert page.evaluate(sideways) <= 390
        before = page.evaluate(width)
        page.click("[data-zoom=in]")
        page.wait_for_function(f"{width} > {before}")
        page.click("[data-zoom=fit]")
        page.wait_for_function(f"Math.abs({width} - {before}) < 2")
        for tab in ("Race", "Memories", "Image-sensitive states"):
            page.open_tab(tab)
            page.wait_for_timeout(1500)
            assert page.evaluate(sideways) <= 390, tab


def test_in_the_dark_a_figure_s_text_has_the_page_s_colour(address):
    with run(address, theme="dark") as page:
        page.wait_for_selector("#facts .facts")
        colour = page.evaluate("getComputedStyle(document.querySelector('#tree text')).fill")
        assert colour == page.evaluate("getComputedStyle(document.querySelector('#facts .facts')).color")
        assert min(map(int, colour.removeprefix("rgb(").rstrip(")").split(", "))) > 200
