"""The lesson's tab."""

from __future__ import annotations

import gradio as gr


def lay_out_lesson() -> None:
    gr.Markdown("The lesson is being written.")
