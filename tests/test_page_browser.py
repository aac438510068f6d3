"""The whole page in a real browser: `python app.py` with a real model, an example asked about, every step looked at."""

import pytest
from app_fakes import FakeEngine, make_trace
from browser import program, served, visit

from app.page import build_page
from app.serving import Serving
from recap_engine.models.loading import EMBEDDED
from recap_engine.scenes import FAMILIES, make_example
from recap_engine.scenes.model import build_model, build_processor, build_tokenizer
from recap_engine.trace import RequestTrace


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """The embedded model; where there is none, one of its kind with random weights."""
    if (EMBEDDED / "config.json").is_file():
        return EMBEDDED
    folder = tmp_path_factory.mktemp("model")
    texts = [text for family in FAMILIES for turn in make_example(family, 0).turns for text in turn]
    tokenizer = build_tokenizer(texts * 20)
    build_model(tokenizer).save_pretrained(folder)
    build_processor(tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def address(model_folder):
    with program(environment={"RECAP_MODEL": str(model_folder)}) as url:
        yield url


def test_a_question_about_an_example_gives_three_equal_answers_and_a_tree(address, tmp_path):
    with visit(address) as page:
        if page.locator("#examples button").count():
            page.locator("#examples button").first.click()
        else:
            page.click("#draw")
        page.wait_for_function("document.querySelector('#question textarea').value.length > 3")
        page.wait_for_selector("#picture img")
        page.get_by_role("button", name="Settings").click()
        page.fill("#limit input[type=number]", "40")
        page.keyboard.press("Tab")
        page.click("#run")
        page.wait_for_selector("#verdict .notice")
        page.wait_for_selector("#run:not([disabled])")

        assert "very same" in page.inner_text("#verdict")
        answers = page.locator(".lane .answer").all_inner_texts()
        assert len(answers) == 3 and len(set(answers)) == 1 and answers[0].strip()

        page.wait_for_selector("#tree .js-plotly-plot .point")
        page.get_by_role("button", name="The nodes of this step as a table").click()
        row = page.locator("#nodes tbody tr").last
        row.wait_for()
        row.click()
        page.wait_for_selector(f'#why [data-node="{row.get_attribute("data-row")}"]')
        facts = page.inner_text("#facts")
        page.click("#next" if " step 1 of" in facts else "#previous")
        page.wait_for_function("before => document.querySelector('#facts').innerText !== before", arg=facts)
        facts = page.inner_text("#facts")
        page.locator("#step input[type=range]").focus()
        page.keyboard.press("ArrowRight" if " step 1 of" in facts else "ArrowLeft")
        page.wait_for_function("before => document.querySelector('#facts').innerText !== before", arg=facts)

        with page.expect_download() as download:
            page.click("#download")
        saved = tmp_path / download.value.suggested_filename
        download.value.save_as(saved)
        assert RequestTrace.load(saved).lanes["recap"].text.strip() == answers[0].strip()


def test_a_broken_picture_is_told_in_one_sentence(address, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n but no picture")
    with visit(address, width=390) as page:
        page.set_input_files("#picture input[type=file]", broken)
        page.wait_for_selector("#picture img")
        page.fill("#question textarea", "What is it?")
        page.click("#run")
        page.wait_for_selector("#message .notice.bad")
        assert "not a picture that can be opened" in page.inner_text("#message")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_stop_keeps_what_was_produced():
    engine = FakeEngine(make_trace(steps=60), step_s=0.1)
    with served(build_page(Serving(engine))) as url, visit(url) as page:
        page.fill("#question textarea", "Tell me everything.")
        page.keyboard.press("Enter")
        page.wait_for_function("document.querySelector('[data-lane=ar] dd').innerText !== '–'")
        page.click("#stop")
        page.wait_for_selector("[data-lane=ar].stopped", timeout=5000)
        page.wait_for_selector("#run:not([disabled])")
        assert page.inner_text("[data-lane=ar] .answer").strip()
        page.wait_for_selector("#download")
