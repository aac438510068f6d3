"""What all event wiring shares: what the server keeps of a visitor, how events are queued, what an error tells."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import texts
from recap_engine.errors import RecapError

Update = dict[gr.blocks.Block, Any]  # the parts of the page that change; gradio leaves all others alone
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}
# Everything that touches the model waits in one queue, so that no visitor's run slows down another's.
ON_THE_MODEL: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1, "api_visibility": "private"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Visit:
    """What the server keeps of one visitor, and shares with no other. gradio hands these out by reference, uncopied."""

    trace: gr.State  # RequestTrace of the last run, or None
    asked: gr.State  # the Ask that it answers; None for a trace from a file
    pool: gr.State  # the Split of every answer that was also looked at without its picture, by answer
    stop: gr.State  # StopFlag, the same object for the Stop button and for the run
    turn: gr.State  # how many runs there were


def sentence(error: Exception) -> str:
    """What the visitor is told of an error: its own sentence if meant for people, else that the log has it."""
    if isinstance(error, RecapError):
        return str(error)
    log.error("Unexpected error on the page", exc_info=error)
    return texts.UNEXPECTED
