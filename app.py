"""Starts the page: `python app.py`, and what a Hugging Face Space runs.

    python app.py                                       # the embedded model
    RECAP_MODEL=Qwen/Qwen2.5-VL-7B-Instruct python app.py
    python app.py --model FOLDER --host 0.0.0.0 --port 7861
    python app.py --trace run.json.gz                   # look at a saved run, without a model

Without --host and --port gradio's own GRADIO_SERVER_NAME and GRADIO_SERVER_PORT count, else 127.0.0.1 and the first
free port from 7860; on a Space it is 0.0.0.0:7860. `app/hosting.md` tells how to host the page for others.

This file and the package `app/` share a name. A package wins over a module, so `import app` is the package, here as
well; this file is only ever run, never imported. `gradio app.py` runs it too and then watches the folder, to serve the
page anew when a file changes. It looks for the page under the name `demo`; the model stays loaded meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before gradio is imported
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gradio as gr  # noqa: E402

from app import texts  # noqa: E402
from app.files import Opened, open_file  # noqa: E402
from app.forked import zero_gpu  # noqa: E402
from app.memory_scope import SCOPES, Memories, scope_wanted  # noqa: E402
from app.page import build_page  # noqa: E402
from app.private_files import end_as_asked, use_private_folder  # noqa: E402
from app.running import Running  # noqa: E402
from app.serving import NoModelError, Serving, Wish  # noqa: E402
from app.space import Choice, address, launch, model_choice  # noqa: E402
from recap_engine.errors import RecapError  # noqa: E402
from recap_engine.trace import TraceError  # noqa: E402


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="RECAP Inspector: watch speculative decoding on a picture and a question."
    )
    parser.add_argument(
        "--model", default=os.environ.get("RECAP_MODEL"), help="hub name or folder; default: the embedded model"
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps; default: the best there is")
    parser.add_argument("--dtype", default="auto", help="float32, bfloat16, float16; default: by device")
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 for all")
    parser.add_argument("--port", type=int)
    parser.add_argument("--trace", help="show this saved trace (.json or .json.gz); no model is loaded")
    parser.add_argument(
        "--memory-scope",
        choices=SCOPES,
        help="whose persistent memories: everybody's or each visitor's own; default: RECAP_MEMORY_SCOPE, else shared, "
        "on a Space session",
    )
    parser.add_argument(
        "--memory",
        default=os.environ.get("RECAP_MEMORY"),
        help="file that keeps shared memories across restarts; default: RECAP_MEMORY",
    )
    return parser.parse_args()


def start_loading(arguments: argparse.Namespace) -> Serving:
    """Load the model in the background, torch included, so that the page opens at once and says that it is loading."""
    serving = Serving()
    serving.load(Wish(arguments.model or None, arguments.device, arguments.dtype))
    return serving


def allowed_choice(host: str) -> Choice:
    """Which models visitors may load; a setting that can't be understood ends the program with one sentence."""
    try:
        return model_choice(host)
    except RecapError as error:
        sys.exit(f"app.py: {error}")


def start_running(serving: Serving, arguments: argparse.Namespace) -> Running:
    """Whose memories requests use, and in which process they run."""
    try:
        memories = Memories(scope_wanted(arguments.memory_scope), arguments.memory)
    except RecapError as error:
        sys.exit(f"app.py: {error}")
    memories.keep_at_exit()
    return Running(serving, memories)


def open_trace(path: str | None) -> Opened | None:
    """The trace to begin with; one that can't be read ends the program with the reader's sentence."""
    try:
        return open_file(path) if path else None
    except TraceError as error:
        sys.exit(f"app.py: {path}: {error}")


if __name__ == "__main__":
    arguments = parse_arguments()
    host, port = address(arguments.host, arguments.port)
    if gr.NO_RELOAD:
        end_as_asked()
        use_private_folder()
        zero_gpu()  # on a ZeroGPU Space its package wants to be imported before torch
        opened = open_trace(arguments.trace)
        serving = Serving(problem=NoModelError(texts.NO_MODEL)) if opened else start_loading(arguments)
        running = start_running(serving, arguments)
    demo = build_page(serving, opened, allowed_choice(host), running)
    launch(demo, serving, host, port)
