"""The panel of the persistent memories in a real browser: saved, emptied, loaded, and gone when the visitor is."""

import time

from browser import served, visit
from test_memory_scope import random_prompts

from app.memory_scope import Memories
from app.page import build_page
from app.running import Running
from app.serving import Serving


def test_a_visitor_saves_empties_and_loads_memories_that_go_when_he_leaves(tmp_path):
    engine = random_prompts()
    memories = Memories("session")
    serving = Serving(engine)
    page = build_page(serving, running=Running(serving, memories))
    with served(page) as url:
        with visit(url) as own:
            own.click("text=Settings")
            own.wait_for_selector("#memory >> text=yours alone")
            assert "0 of 96" in own.inner_text("#memory")
            own.fill("#question textarea", "one")
            own.keyboard.press("Enter")
            own.wait_for_selector("#memory >> text=1 request")
            held = own.inner_text("#memory table")
            with own.expect_download() as download:
                own.click("#memory-save")
            assert download.value.suggested_filename == "recap-memories.safetensors"
            download.value.save_as(tmp_path / "m.safetensors")
            own.click("#memory-empty")
            own.wait_for_selector("#memory >> text=0 requests")
            with own.expect_file_chooser() as chooser:
                own.click("#memory-load")
            chooser.value.set_files(tmp_path / "m.safetensors")
            own.wait_for_selector("#memory >> text=1 request")
            assert own.inner_text("#memory table") == held
            own.screenshot(path=tmp_path / "memory.png")
            assert len(memories._own) == 1
        for _ in range(600):
            if not memories._own:
                break
            time.sleep(0.1)
        assert not memories._own
