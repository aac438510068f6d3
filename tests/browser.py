"""The page in a real browser, for the tests that need one: a server in its own process or in this one, and a visit."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gradio as gr
import pytest
from playwright.sync_api import Page, sync_playwright

from app.theme import CSS_PATH, make_theme

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_MS = 180_000
START_S = 600  # a busy machine takes minutes to import what the page needs

if not CHROMIUM and not os.environ.get("CI"):
    pytest.skip("no chromium on this machine", allow_module_level=True)


@contextmanager
def program(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """`python app.py` in its own process, as a visitor's laptop runs it; the address it serves."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    variables = os.environ | (environment or {}) | {"GRADIO_SERVER_PORT": str(port)}
    server = subprocess.Popen([sys.executable, "app.py", *arguments], cwd=ROOT, env=variables)
    try:
        _wait_for(f"http://127.0.0.1:{port}/", server)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait(20)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(2 * START_S):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert server.poll() is None, "the app ended before it answered"
            time.sleep(0.5)
    raise TimeoutError(url)


@contextmanager
def served(page: gr.Blocks) -> Iterator[str]:
    """The page served from this process; its address."""
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, theme=make_theme(), css_paths=CSS_PATH)
    try:
        yield url
    finally:
        page.close()


@contextmanager
def visit(url: str, width: int = 1280, chip: str = "ready") -> Iterator[Page]:
    """A page in a fresh browser once its head says `chip`; any script error fails the test."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        faults: list[str] = []
        page.on("pageerror", lambda fault: faults.append(str(fault)))
        page.goto(url)
        page.wait_for_selector(f".chip.{chip}")
        yield page
        browser.close()
    assert not faults
