"""The page builds, and its handlers answer every kind of request with a result or one clear sentence."""

import json

import gradio as gr
import pytest
from app_fakes import FakeEngine, make_trace
from gradio.data_classes import ImageData

from app import texts
from app.cards import masthead
from app.events import sentence
from app.lanes import StopFlag
from app.page import build_page
from app.pictures import draw_scene, read_examples
from app.serving import Serving
from app.theme import CSS_PATH, make_theme
from recap_engine.errors import RecapError
from recap_engine.trace import RequestTrace


def handler(page, name):
    return next(fn.fn for fn in page.fns.values() if fn.name == name)


def run(page, question="What is it?", picture=None, lanes=("ar", "tr", "recap"), budget="auto"):
    """What one press of Run shows, all updates merged: a dict from a component's id to its last value."""
    given = (picture, question, list(lanes), 64, budget, 0, StopFlag())
    updates = list(handler(page, "answer_all")(*given))
    states = [value for update in updates for part, value in update.items() if isinstance(part, gr.State)]
    trace = next((state for state in states if isinstance(state, RequestTrace)), None)
    updates += handler(page, "show_result")(trace)
    return {part.elem_id: value for update in updates for part, value in update.items()}


def test_the_page_builds_before_the_model_is_there():
    page = build_page(Serving())
    labels = {getattr(block, "label", None) for block in page.blocks.values()}
    assert {"Picture", "Question", "Lane", "Step", "Lanes"} <= labels
    assert "loading" in json.dumps(page.get_config_file(), default=str)


def test_theme_and_style_sheet_are_there():
    assert isinstance(make_theme(), gr.themes.Base)
    assert ".lane" in CSS_PATH.read_text()


def test_a_run_fills_cards_verdict_inspector_and_download():
    shown = run(build_page(Serving(FakeEngine())))
    assert shown["cards"].count("data-lane") == 3
    assert shown["inspector"]["visible"]
    assert "kB" in shown["download"]["label"]
    assert texts.WITHOUT_PICTURE in shown["message"]
    assert shown["run"]["interactive"] and not shown["stop"]["interactive"]


def test_recap_plus_is_offered_with_a_sentence_and_is_off_until_it_is_ticked():
    page = build_page(Serving(FakeEngine(make_trace(steps=4, plus=True))))
    lanes, *_ = (block for block in page.blocks.values() if getattr(block, "label", "") == "Lanes")  # the first tab's
    assert lanes.value == ["ar", "tr", "recap"] and "recap+" in dict(lanes.choices).values()
    assert "this project’s variant" in lanes.info
    shown = run(page, lanes=["recap+"])
    assert shown["cards"].count("data-lane") == 1 and "persistent" in shown["strip"] and "local" not in shown["strip"]
    assert 'data-lane="recap+"' in shown["facts"] and "persistent" in shown["why"]


@pytest.mark.parametrize(
    ("reduced", "told"),
    [
        ([((4000, 3000), (1632, 1224))], "The model was shown 4000 × 3000 pixels as 1632 × 1224."),
        (
            [((4000, 3000), (1632, 1224)), ((90, 9000), (63, 6320))],
            "The model was shown 4000 × 3000 pixels as 1632 × 1224; 90 × 9000 pixels as 63 × 6320.",
        ),
    ],
)
def test_pictures_that_the_model_was_shown_smaller_are_told(reduced, told):
    class Reducing(FakeEngine):
        def prepare(self, question, image=None):
            request = super().prepare(question, image)
            request.reduced = reduced
            return request

    assert told in run(build_page(Serving(Reducing())), picture="p.png")["message"]
    assert "was shown" not in run(build_page(Serving(FakeEngine())), picture="p.png")["message"]


def test_ar_alone_has_timing_but_no_trees():
    shown = run(build_page(Serving(FakeEngine())), lanes=["ar"])
    assert shown["inspector"]["visible"]
    assert not shown["steps-area"]["visible"]
    assert "nothing to compare" in shown["verdict"]


@pytest.mark.parametrize(
    ("engine", "given", "told"),
    [
        (FakeEngine(), {"question": " "}, "Please ask a question."),
        (FakeEngine(), {"lanes": []}, texts.NO_LANES),
        (FakeEngine(fails_in="tr"), {}, texts.UNEXPECTED.split(";")[0]),
    ],
)
def test_what_goes_wrong_is_told_in_one_sentence(engine, given, told):
    shown = run(build_page(Serving(engine)), **given)
    assert told in shown["message"]
    assert "Traceback" not in shown["message"]
    assert shown["run"]["interactive"]
    assert not shown["inspector"]["visible"]


def test_a_model_that_cannot_be_loaded_is_named_in_one_sentence():
    serving = Serving(problem=RecapError("The model x cannot be loaded: no such folder."))
    assert "no such folder" in run(build_page(serving))["message"]


def test_an_error_not_meant_for_people_is_logged_not_shown(caplog):
    assert sentence(KeyError("secret")) == texts.UNEXPECTED
    assert "secret" in caplog.text
    assert sentence(RecapError("Say this.")) == "Say this."


def test_the_picture_reaches_the_engine_as_it_was_uploaded_and_no_other_file_does(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    page = build_page(Serving())
    picture = next(block for block in page.blocks.values() if isinstance(block, gr.Image))
    broken = ImageData(path=str(tmp_path / "abc" / "broken.png"))
    assert picture.preprocess(broken) == broken.path
    assert picture.preprocess(None) is None
    for path in ("/etc/passwd", f"{tmp_path}/../x.png", f"{tmp_path}x/y.png", "http://example.org/x.png", None):
        with pytest.raises(gr.Error, match="upload the file"):
            picture.preprocess(ImageData(path=path))


def test_a_drawn_scene_says_where_it_comes_from():
    picture, question, told = draw_scene()
    assert picture.size == (448, 448)
    assert question
    assert "seed" in told


def test_examples_that_are_missing_are_left_out(tmp_path):
    assert read_examples(tmp_path) == []
    (tmp_path / "examples.json").write_text('[{"image": "gone.png", "question": "?", "family": "chart"}]')
    assert read_examples(tmp_path) == []


def test_what_the_head_says_is_escaped():
    assert "&lt;b&gt;" in masthead("failed", "<b>")
