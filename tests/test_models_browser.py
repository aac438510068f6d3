"""Another model is chosen in a real browser: list, progress, cancel, a refusal, and the new name in the head."""

from threading import Event

from app_fakes import FakeEngine
from browser import served, visit

from app.page import build_page
from app.serving import Serving
from recap_engine.errors import RecapError

CHOSEN = "HuggingFaceTB/SmolVLM-256M-Instruct"


def test_a_model_is_chosen_while_the_old_one_stays_until_the_new_one_is_there():
    go_on = Event()
    wishes = []

    def load(wish, follow):
        wishes.append(wish)
        follow(100_000_000, 500_000_000)
        while not go_on.wait(0.05):
            follow(200_000_000, 500_000_000)  # raises once it is cancelled
        if wish.name == "me/large":
            raise RecapError("me/large needs about 90 GB of memory: choose a smaller model.")
        engine = FakeEngine()
        engine.model_name = wish.name
        return engine

    with served(build_page(Serving(FakeEngine(), load=load))) as url, visit(url, width=390) as page:
        page.get_by_role("tab", name="Models").click()
        page.locator("#models tbody th", has_text=CHOSEN).wait_for()
        page.click("#model-name input")
        page.get_by_role("option", name=CHOSEN).click()
        page.click("#model-load")
        page.wait_for_selector("#model-told progress[value]")
        assert "0.1 of 0.5 GB" in page.inner_text("#model-told") or "0.2 of 0.5 GB" in page.inner_text("#model-told")
        assert "made-up" in page.inner_text(".masthead")
        page.click("#model-cancel")
        page.wait_for_function("document.querySelector('#model-told').innerText.includes('cancelled')")

        go_on.set()
        page.fill("#model-name input", "me/large")
        page.keyboard.press("Enter")
        page.click("#model-load:not([disabled])")
        page.wait_for_selector("#model-told .notice.bad")
        assert "90 GB" in page.inner_text("#model-told")
        assert "made-up stays loaded" in page.inner_text("#model-told")

        page.fill("#model-name input", CHOSEN)
        page.keyboard.press("Enter")
        page.click("#model-load:not([disabled])")
        page.wait_for_function("name => document.querySelector('.chip.ready').innerText.includes(name)", arg=CHOSEN)
        assert [wish.name for wish in wishes] == [CHOSEN, "me/large", CHOSEN]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
