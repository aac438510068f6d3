"""Several visitors in a real browser: whoever waits sees a place in the queue, and it gets better."""

from app_fakes import FakeEngine, make_trace
from browser import served, visit
from playwright.sync_api import Page

from app.page import build_page
from app.serving import Serving


def ask(page: Page) -> None:
    page.wait_for_selector(".chip.ready")
    page.fill("#question textarea", "Tell me everything.")
    page.keyboard.press("Enter")


def test_who_waits_sees_a_place_in_the_queue_and_is_answered_once_the_others_stop():
    engine = FakeEngine(make_trace(steps=400), step_s=0.1)
    with served(build_page(Serving(engine))) as url, visit(url) as first:
        second, third = (first.context.browser.new_page() for _ in range(2))
        ask(first)
        first.wait_for_selector(".lane.running")
        for place, page in enumerate((second, third), start=1):
            page.goto(url)
            ask(page)
            page.wait_for_selector(f"text=/queue: {place}.{place}/")
        first.click("#stop")
        second.wait_for_selector(".lane.running")
        third.wait_for_selector("text=/queue: 1.1/")
        second.click("#stop")
        third.wait_for_selector(".lane.running")
