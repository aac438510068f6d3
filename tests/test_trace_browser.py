"""Traces and the lesson in a real browser, without a model: every page of the lesson, and a file there and back."""

import gzip
import re

import pytest
from app_fakes import make_trace
from browser import program, served, visit

from app.files import Opened
from app.lesson import PAGES
from app.lesson_view import FOLDER
from app.page import build_page
from app.serving import Serving

RECORDED = FOLDER / "description.json.gz"


@pytest.fixture(scope="module")
def url():
    """A page that began with a made-up trace."""
    with served(build_page(Serving(), Opened(make_trace(plus=True), "made-up.json.gz"))) as address:
        yield address


def strip(page):
    page.wait_for_selector("#strip .strip")
    return page.locator("#strip .strip").inner_text()


@pytest.mark.skipif(not RECORDED.exists(), reason="the lesson's traces are not recorded here")
def test_the_lesson_from_its_first_page_to_its_last(url):
    with visit(url, chip="off") as page:
        page.get_by_role("tab", name="Lesson").click()
        for number, lesson_page in enumerate(PAGES, start=1):
            page.wait_for_selector(f"#lesson-question [data-page='{number}']")
            assert page.inner_text("#lesson-body h2") == lesson_page.title
            if "tree" in lesson_page.view.panels:
                page.wait_for_selector("#lesson-tree .js-plotly-plot .point")
            page.click("#lesson-question summary")
            assert page.locator("#lesson-question details p").is_visible()
            assert not re.search(r"\{\w+\}", page.inner_text("#lesson-body") + page.inner_text("#lesson-question"))
            if number < len(PAGES):
                page.click("#lesson-next")
        assert page.locator("#lesson-next").is_disabled()
        page.click("#lesson-previous")
        page.wait_for_selector(f"#lesson-question [data-page='{len(PAGES) - 1}']")


def test_run_says_why_it_cannot(url):
    with visit(url, chip="off") as page:
        page.fill("#question textarea", "What is it?")
        page.click("#run")
        page.wait_for_selector("#message .notice.bad")
        assert "without --trace" in page.inner_text("#message")


def test_a_file_that_is_no_trace_is_told_in_one_sentence_and_changes_nothing(url, tmp_path):
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(b'{"schema":2, "model": "x"'))
    with visit(url, chip="off") as page:
        before = strip(page)
        with page.expect_file_chooser() as chooser:
            page.click("#open")
        chooser.value.set_files(cut)
        page.wait_for_selector("#message .notice.bad")
        assert page.inner_text("#message").count(".") == 1
        assert strip(page) == before


def test_a_saved_trace_opens_in_another_process_with_the_same_strip(url, tmp_path):
    with visit(url, chip="off") as page:
        before = strip(page)
        with page.expect_download() as download:
            page.click("#download")
        assert re.search(r"\d kB", page.inner_text("#download"))
        saved = tmp_path / download.value.suggested_filename
        download.value.save_as(saved)
    assert saved.name.endswith(".json.gz")
    with program("--trace", str(saved)) as other, visit(other, width=390, chip="off") as page:
        assert strip(page) == before
        assert saved.name in page.inner_text("#message")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
