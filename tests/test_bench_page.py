"""The tab "Benchmark": a short run in a real browser, its files, a saved run opened, and a foreign file refused."""

import json
from time import sleep

import pytest
from browser import served, visit
from tiny_models import random_request, tiny_engine

from app.bench_view import on_page
from app.figures.base import CLEAR
from app.page import build_page
from app.serving import Serving
from recap_engine.bench.html import lanes_figure
from recap_engine.bench.ratios import rows
from recap_engine.bench.results import Measurement, Setting, pack, unpack
from recap_engine.errors import RecapError
from recap_engine.scenes import FAMILIES
from recap_engine.stepcost import StepCost

RUN = [
    Measurement(suite, "1", 1, lane, 21, steps, 0.1, seconds)
    for suite in ("counting", "charts")
    for lane, steps, seconds in (("ar", 20, 2.0), ("recap", 8, 1.0))
]
SETTING = Setting({"model": "a model"}, {"device": "cpu"}, {"ar": "plain", "recap": "ours"}, step_cost=[0.01, 0.02])
SETTING.step_cost_per_token = [0.0, 1e-5]


@pytest.fixture
def engine(monkeypatch):
    """A random model that takes any drawn picture for a random prompt."""
    engine = tiny_engine("llama")
    engine.step_cost = StepCost((0.01, 0.012, 0.013), (1e-6, 2e-6, 3e-6))
    engine.prepare = lambda question, *more: random_request("llama", seed=len(question))
    return engine


def upload(page, file):
    with page.expect_file_chooser() as chooser:
        page.click("#bench-open")
    chooser.value.set_files(file)


def test_a_run_is_shown_saved_and_opened_again(engine, tmp_path):
    with served(build_page(Serving(engine))) as url, visit(url) as page:
        page.get_by_role("tab", name="Benchmark").click()
        assert "Nothing measured yet" in page.inner_text("#tabs")
        for suite in FAMILIES[1:]:
            page.locator("#bench-suites label", has_text=suite).click()
        page.fill("#bench-limit input[type=number]", "8")
        page.keyboard.press("Tab")
        page.click("#bench-run")
        page.wait_for_selector("#bench-told .notice.good")
        for figure in ("#bench-lanes", "#bench-by-suite", "#bench-requests", "#bench-cost"):
            page.wait_for_selector(f"{figure} .js-plotly-plot")
        assert "oracle" in page.inner_text("#bench-table")
        with page.expect_download() as download:
            page.click("#bench-save-json")
        saved = tmp_path / "run.json"
        download.value.save_as(saved)
        setting, measurements = unpack(saved)
        assert {m.suite for m in measurements} == {FAMILIES[0]} and setting.cost == engine.step_cost

    with served(build_page(Serving(engine))) as url, visit(url, width=390) as page:
        page.get_by_role("tab", name="Benchmark").click()
        upload(page, saved)
        page.wait_for_selector("#bench-lanes .js-plotly-plot")
        assert "Opened a run of tiny llama, on cpu in float32" in page.inner_text("#bench-told")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        evil = json.loads(saved.read_text())
        evil["measurements"][0]["suite"] = "<img src=x onerror=alert(1)>"
        saved.write_text(json.dumps(evil))
        upload(page, saved)
        page.wait_for_selector("#bench-told .notice.bad")
        assert page.inner_text("#bench-told").startswith("This is not a run of the bench")


def test_stop_ends_a_run_before_the_next_lane_and_frees_the_button(engine, monkeypatch):
    ran = []

    class Slow(type(engine)):
        def answer(self, *given):
            ran.append(given[1])
            sleep(0.5)
            return super().answer(*given)

    engine.__class__ = Slow
    with served(build_page(Serving(engine))) as url, visit(url) as page:
        page.get_by_role("tab", name="Benchmark").click()
        page.click("#bench-run")
        page.wait_for_selector("#bench-stop:not([disabled])")
        page.click("#bench-stop")
        page.wait_for_selector("#bench-run:not([disabled])")
        assert page.inner_text("#bench-told").startswith("Stopped before the first question")
        assert len(ran) <= 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: made.pop("setting"),
        lambda made: made["setting"].update(more=1),
        lambda made: made["setting"].update(step_cost="steep"),
        lambda made: made["setting"].update(step_cost_per_token=[0.0, -1.0]),
        lambda made: made["setting"].update(step_cost_per_token=[1e-5]),
        lambda made: made["setting"].update(budgets={"tr": float("nan")}),
        lambda made: made["setting"].update(notes=[["x"]]),
        lambda made: made["measurements"].clear(),
        lambda made: made["measurements"][0].update(lane="<script>"),
        lambda made: made["measurements"][0].update(case="x" * 301),
        lambda made: made["measurements"][0].update(tokens=2.5),
        lambda made: made["measurements"][0].update(tokens=10**9),
        lambda made: made["measurements"][0].update(decode_s=0.0),
        lambda made: made["measurements"][0].update(decode_s=float("inf")),
        lambda made: made["measurements"][0].update(prefill_s=-1),
        lambda made: made["measurements"][0].update(differs_at=3),
        lambda made: made["measurements"][0].update(right="yes"),
        lambda made: [m.update(lane="tr") for m in made["measurements"]],
    ],
)
def test_a_file_that_no_run_left_is_refused_in_one_sentence(tmp_path, spoil):
    file = tmp_path / "run.json"
    file.write_text(pack(SETTING, RUN))
    assert unpack(file) == (SETTING, RUN)
    made = json.loads(file.read_text())
    spoil(made)
    file.write_text(json.dumps(made))
    with pytest.raises(RecapError, match="^This is not a run of the bench; choose the run.json that a run leaves.$"):
        unpack(file)


@pytest.mark.parametrize("content", [b"", b"[]", b"{" * 100_000, b"\xff\xfe", b'{"setting": [], "measurements": {}}'])
def test_a_foreign_file_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(RecapError, match="not a run of the bench"):
        unpack(tmp_path / "x")


def test_a_figure_of_the_report_suits_a_dark_page():
    figure = on_page(lanes_figure(rows(RUN)))
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == CLEAR
    assert [bar.name for bar in figure.data] == ["decoding", "whole request"]
