"""Which model answers: said in the page's head."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import gradio as gr

from app import texts
from app.cards import masthead
from app.serving import Serving, Status
from app.wiring import QUIET, sentence

WATCH_S = 0.3  # between two looks at a model that is loading


def head_of(status: Status) -> str:
    """The page's head: the model at hand, or why there is none."""
    if status.engine:
        precision = str(status.engine.dtype).removeprefix("torch.")
        return masthead("ready", f"{status.engine.model_name} · {status.engine.device} · {precision}")
    if status.state == "failed" and status.problem:
        return masthead("failed", sentence(status.problem))
    return masthead(status.state, texts.NO_MODEL_CHIP if status.state == "off" else texts.LOADING_CHIP)


def wire_head(page: gr.Blocks, head: gr.HTML, serving: Serving) -> None:
    """Name the model as soon as it is loaded, or say why it can't be."""

    async def watch() -> AsyncIterator[str]:
        while (status := serving.status).state == "loading":
            await asyncio.sleep(WATCH_S)
        yield head_of(status)

    page.load(watch, outputs=head, **QUIET)
