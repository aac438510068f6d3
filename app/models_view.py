"""Which model answers: said in the page's head, and chosen in the tab "Models" where the host allows it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gradio as gr

from app import texts
from app.cards import heading, masthead, notice
from app.exports import html_table
from app.serving import Job, NoModelError, Serving, Status, Wish
from app.space import Choice
from app.wiring import QUIET, Update, sentence
from recap_engine.errors import RecapError

EMBEDDED_NAME = "embedded model"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
LONGEST_NAME = 300
COLUMNS = ["Model", "Family", "Download", "Memory", "Fits now", "Here", "Licence"]
DEVICES = ["auto", "cpu", "cuda", "mps"]
WATCH_S = 0.3  # between two looks at a model that is loading
GIGABYTE = 10**9


@dataclass(frozen=True)
class ModelsTab:
    """The choice of a model."""

    tab: gr.Tab
    told: gr.HTML
    table: gr.HTML
    name: gr.Dropdown
    device: gr.Dropdown
    dtype: gr.Dropdown
    load: gr.Button
    cancel: gr.Button


# ---- layout ----------------------------------------------------------------------------------------------------


def lay_out_models(tab: gr.Tab, choice: Choice) -> ModelsTab:
    gr.HTML(heading("The model that answers", texts.MODELS))
    told = gr.HTML(elem_id="model-told")
    gr.HTML(notice(texts.NO_CHOICE) if choice is Choice.NONE else "", visible=choice is Choice.NONE)
    allowed = choice is not Choice.NONE
    with gr.Row(equal_height=True, visible=allowed):
        name = gr.Dropdown(
            [EMBEDDED_NAME],
            value=EMBEDDED_NAME,
            allow_custom_value=True,
            label="Model: choose one, or type a name of the Hub" + (" or a folder" if choice is Choice.FOLDERS else ""),
            elem_id="model-name",
            scale=4,
            min_width=280,
        )
        precisions = ["auto", "float32", "bfloat16", "float16"] + ["4bit"] * bool(find_spec("bitsandbytes"))
        device = gr.Dropdown(DEVICES, value="auto", label="Device", elem_id="model-device", min_width=110)
        dtype = gr.Dropdown(precisions, value="auto", label="Precision", elem_id="model-dtype", min_width=110)
    with gr.Row(visible=allowed):
        load = gr.Button("Load", variant="primary", elem_id="model-load", min_width=120)
        cancel = gr.Button("Cancel", variant="stop", interactive=False, elem_id="model-cancel", min_width=120)
    table = gr.HTML(elem_id="models")
    gr.Markdown(texts.PICTURE_BOUNDS + texts.ABOUT_MODELS)
    return ModelsTab(tab, told, table, name, device, dtype, load, cancel)


# ---- what is shown ---------------------------------------------------------------------------------------------


def head_of(status: Status) -> str:
    """The page's head: the model at hand, or why there is none."""
    if status.engine:
        return masthead("ready", f"{status.engine.model_name} · {status.engine.device} · {precision_of(status)}")
    if status.job:
        return masthead("loading", doing(status.job))
    if status.state == "failed":
        return masthead("failed", sentence(status.problem) if status.problem else "")
    return masthead("off", texts.NO_MODEL_CHIP)


def told_of(status: Status) -> str:
    """What became of the latest wish for a model, or how far it is."""
    stays = f" {status.engine.model_name} stays loaded." if status.engine else ""
    if status.job:
        part = f' max="{status.job.whole}" value="{status.job.here}"' if status.job.whole else ""
        meanwhile = f" Meanwhile {status.engine.model_name} answers." if status.engine else ""
        words = escape(doing(status.job) + meanwhile)
        return f'<p class="notice info">{words}<progress{part} aria-label="Loading"></progress></p>'
    if status.problem:
        kind = "info" if isinstance(status.problem, NoModelError) else "bad"
        return notice(sentence(status.problem) + stays, kind)
    if status.engine:
        engine = status.engine
        return notice(f"{engine.model_name} is loaded, on {engine.device} in {precision_of(status)}.", "good")
    return notice(texts.NO_MODEL_YET)


def doing(job: Job) -> str:
    """How far a model is, in words."""
    name = shown_name(job.wish)
    if not job.whole:
        return f"loading {name} …"
    if job.here < job.whole:
        return f"downloading {name}: {job.here / GIGABYTE:.1f} of {job.whole / GIGABYTE:.1f} GB …"
    return f"downloaded {name}; loading it …"


def shown_name(wish: Wish) -> str:
    """A model's name, of a folder only the last part."""
    if wish.name is None:
        return f"the {EMBEDDED_NAME}"
    return Path(wish.name).name if Path(wish.name).is_dir() else wish.name


def precision_of(status: Status) -> str:
    return str(status.engine.dtype).removeprefix("torch.") if status.engine else ""


def model_rows(device: str = "auto", dtype: str = "auto") -> list[list[str]]:
    """Rows of COLUMNS: the embedded model, then the catalogue. Raises RecapError for a device that is not there."""
    from recap_engine.models import placement
    from recap_engine.models.catalogue import CATALOGUE, Known
    from recap_engine.models.loading import EMBEDDED, read_config

    where = placement.pick_device(device)
    kind = dtype if dtype == placement.FOUR_BIT else str(placement.pick_dtype(dtype, where)).removeprefix("torch.")
    free = placement.free_memory(where)

    def row(known: Known, here: str) -> list[str]:
        need = known.memory(placement.BYTES[kind][0])
        fits = "–" if free is None else "yes" if need * GIGABYTE <= free else "no"
        licence = known.licence + ("; accept it on the Hub" if known.gated else "")
        return [known.name, known.family, gigabytes(known.size), gigabytes(need), fits, here, licence]

    _, family = read_config(EMBEDDED, EMBEDDED_NAME)
    size = sum(file.stat().st_size for file in EMBEDDED.glob("*.safetensors"))
    own = Known(EMBEDDED_NAME, family.name, size / 4 / GIGABYTE, "apache-2.0", bytes_each=4)
    return [row(own, "yes"), *(row(known, "yes" if known.on_disk else "no") for known in CATALOGUE)]


def model_table(rows: list[list[str]]) -> str:
    return html_table(COLUMNS, rows, "Known models")


def gigabytes(size: float) -> str:
    return f"{size:.1f} GB" if size >= 0.1 else f"{size * 1000:.0f} MB"


# ---- events ----------------------------------------------------------------------------------------------------


def wish_of(text: str, device: str, dtype: str, choice: Choice) -> Wish:
    """What a visitor asks for. Raises RecapError for a folder where the host allows names of the Hub only."""
    name = (text or "").strip()
    if len(name) > LONGEST_NAME:
        raise RecapError(f"A model's name has at most {LONGEST_NAME} characters.")
    if name in ("", EMBEDDED_NAME):
        return Wish(None, device, dtype)
    if choice is not Choice.FOLDERS and (not HUB_NAME.fullmatch(name) or Path(name).exists()):
        raise RecapError("Name a model of the Hub, as owner/model; folders are not open to visitors of this page.")
    return Wish(name, device, dtype)


def wire_models(
    page: gr.Blocks, head: gr.HTML, models: ModelsTab, runs: list[Any], serving: Serving, choice: Choice
) -> None:
    """Every visitor sees which model there is, when the page opens and at `runs`, the events that start one.

    Nothing that changes the model is wired where the host does not allow it.
    """

    def shown(status: Status) -> Update:
        going = status.job is not None
        return {
            head: head_of(status),
            models.told: told_of(status),
            models.load: gr.update(interactive=not going),
            models.cancel: gr.update(interactive=going),
        }

    async def watch() -> AsyncIterator[Update]:
        """The state now and, while a model is loading, whenever its words change."""
        words = None
        while (status := serving.status).job:
            if doing(status.job) != words:
                words = doing(status.job)
                yield shown(status)
            await asyncio.sleep(WATCH_S)
        yield shown(status)

    def list_models(device: str, dtype: str) -> Update:
        try:
            rows = model_rows(device, dtype)
        except Exception as error:
            return {models.table: notice(sentence(error), "bad")}
        return {models.table: model_table(rows), models.name: gr.update(choices=[row[0] for row in rows])}

    async def load(name: str, device: str, dtype: str) -> AsyncIterator[Update]:
        try:
            serving.load(wish_of(name, device, dtype, choice))
        except RecapError as error:
            yield {models.told: notice(str(error), "bad")}
            return
        async for update in watch():
            yield update

    state = [head, models.told, models.load, models.cancel]
    listed = [models.device, models.dtype]
    table = [models.table, models.name]
    page.load(watch, outputs=state, **QUIET)
    gr.on(runs, lambda: head_of(serving.status), outputs=head, **QUIET)
    models.tab.select(watch, outputs=state, **QUIET)
    models.tab.select(list_models, listed, table, **QUIET)
    if choice is Choice.NONE:
        return
    gr.on([models.device.input, models.dtype.input], list_models, listed, table, **QUIET)
    loaded = models.load.click(load, [models.name, *listed], state, **QUIET)
    loaded.then(list_models, listed, table, **QUIET)
    models.cancel.click(serving.cancel, queue=False, api_visibility="private")
