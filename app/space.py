"""How the page is served: on one's own machine or a Hugging Face Space, who may change the model, and its health."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.limits import Limits
from app.serving import Serving
from app.theme import CSS_PATH, make_theme
from recap_engine import __version__
from recap_engine.errors import RecapError

SPACE_PORT = 7860  # where a Space is looked for
EVERYWHERE = "0.0.0.0"
THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
LARGEST_UPLOAD = "50mb"
MOST_VISITORS = 60  # whose page and latest run are kept, a megabyte or so each; whoever came longest ago starts anew


class Choice(Enum):
    """Which models a visitor may load, for all visitors; the value of RECAP_ALLOW_MODEL_CHOICE."""

    NONE = "0"
    HUB = "1"  # names of the Hub
    FOLDERS = "folders"  # and folders of this machine


def on_space() -> bool:
    """Whether a Hugging Face Space runs this."""
    return bool(os.environ.get("SPACE_ID"))


def address(host: str | None, port: int | None) -> tuple[str, int | None]:
    """Where to listen: what is asked for, else what a Space needs, else what gradio's variables say, else this machine.

    Without a port gradio takes GRADIO_SERVER_PORT, or the first free one from 7860.
    """
    if on_space():
        return host or EVERYWHERE, port or SPACE_PORT
    return host or os.environ.get("GRADIO_SERVER_NAME") or THIS_MACHINE[0], port


def model_choice(host: str) -> Choice:
    """RECAP_ALLOW_MODEL_CHOICE; unless it is set, models are chosen where only this machine can reach the page.

    Raises RecapError for a value that is none of the three.
    """
    wish = os.environ.get("RECAP_ALLOW_MODEL_CHOICE")
    if wish:
        try:
            return Choice(wish)
        except ValueError as error:
            allowed = ", ".join(choice.value for choice in Choice)
            raise RecapError(f"RECAP_ALLOW_MODEL_CHOICE must be one of {allowed}.") from error
    return Choice.FOLDERS if host in THIS_MACHINE else Choice.NONE


def launch(page: gr.Blocks, serving: Serving, host: str, port: int | None, **more: Any) -> Any:
    """Serve the page and, beside it, GET /health."""
    return page.launch(
        server_name=host,
        server_port=port,
        theme=make_theme(),
        css_paths=CSS_PATH,
        footer_links=[],
        run_history=False,
        max_file_size=LARGEST_UPLOAD,
        ssr_mode=False,
        state_session_capacity=MOST_VISITORS,
        app_kwargs={
            "routes": [health_route(serving)],
            "middleware": [Middleware(Limits, behind_proxy=on_space())],
        },
        **more,
    )


def health_route(serving: Serving) -> Route:
    """GET /health: 200 once a model can be asked, 503 before; says nothing that a visitor doesn't see on the page."""

    async def health(request: Request) -> JSONResponse:
        status = serving.status
        told: dict[str, str] = {"status": status.state, "version": __version__}
        if status.engine:
            precision = str(status.engine.dtype).removeprefix("torch.")
            told |= {"model": status.engine.model_name, "device": str(status.engine.device), "dtype": precision}
        return JSONResponse(told, status_code=200 if status.engine else 503)

    return Route("/health", health, methods=["GET"])
