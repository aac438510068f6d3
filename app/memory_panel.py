"""The persistent memories on the page: whose they are, how full, and saving, loading and emptying them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.cards import notice
from app.marks import LANES
from app.memory_scope import SESSION, SHARED, Memories
from app.pictures import take_only_uploads
from app.running import Running
from app.wiring import ON_THE_MODEL, QUIET, Update, sentence
from recap_engine.memory import MOST_CONTEXTS

if TYPE_CHECKING:
    from recap_engine.memory import TokenMemory

SAVED_AS = "recap-memories.safetensors"
WHOSE = {
    SHARED: "Everybody who uses this page drafts from the same persistent memories, and adds to them.",
    SESSION: "These memories are yours alone: nobody else drafts from them or sees them, and they go when you leave.",
}
FORGOTTEN = "The persistent memories are empty: the next run starts cold."
LOADED = "The persistent memories are those of the file; the next run drafts from them."
SAVED = "The persistent memories are saved in your downloads."
NOT_YET = "They are empty until a model is loaded."
PRESS_DOWNLOAD = """() => { setTimeout(() => document.querySelector("#memory-file").click(), 300); }"""


@dataclass(frozen=True)
class MemoryPart:
    """The panel."""

    view: gr.HTML
    save: gr.Button
    file: gr.DownloadButton  # what Save made, pressed by the page itself
    load: gr.UploadButton
    empty: gr.Button


def lay_out_memory() -> MemoryPart:
    view = gr.HTML(elem_id="memory")
    with gr.Row():
        save = gr.Button("Save to a file", size="sm", elem_id="memory-save", min_width=120)
        load = gr.UploadButton("Load from a file", size="sm", elem_id="memory-load", min_width=120)
        empty = gr.Button("Empty them", size="sm", elem_id="memory-empty", min_width=120)
    take_only_uploads(load)
    file = gr.DownloadButton("Download", visible="hidden", elem_id="memory-file")
    return MemoryPart(view, save, file, load, empty)


def wire_memory(
    page: gr.Blocks, part: MemoryPart, message: gr.HTML, after: gr.events.Dependency, running: Running
) -> None:
    """The view is drawn when the page opens and `after` every run; what a button did is told in `message`."""

    def show_memory(request: gr.Request | None = None) -> str:
        return memory_view(running, session(request))

    def save_memory(request: gr.Request | None = None) -> Iterator[Update]:
        with tempfile.TemporaryDirectory() as folder:  # gradio copies the file out of it before this resumes
            path = Path(folder) / SAVED_AS
            try:
                running.own(session(request)).save_memories(path)
            except Exception as error:
                gr.Warning(sentence(error))
                raise gr.Error(sentence(error), print_exception=False) from error
            yield {part.file: str(path), message: notice(SAVED)}

    def load_memory(path: str, request: gr.Request | None = None) -> tuple[str, str]:
        return done(LOADED, lambda: running.own(session(request)).load_memories(path), request)

    def empty_memory(request: gr.Request | None = None) -> tuple[str, str]:
        return done(FORGOTTEN, lambda: running.own(session(request)).clear_memories(), request)

    def done(told: str, change: Any, request: gr.Request | None) -> tuple[str, str]:
        try:
            change()
            running.memories.keep(now=True)
        except Exception as error:
            return notice(sentence(error), "bad"), memory_view(running, session(request))
        return notice(told), memory_view(running, session(request))

    def leave(request: gr.Request | None = None) -> None:
        running.memories.leave(session(request))

    page.load(show_memory, outputs=part.view, **QUIET)
    page.unload(leave)
    after.then(show_memory, outputs=part.view, **QUIET)
    saved = part.save.click(save_memory, outputs=[part.file, message], **ON_THE_MODEL)
    saved.success(None, js=PRESS_DOWNLOAD)
    part.load.upload(load_memory, part.load, [message, part.view], **ON_THE_MODEL)
    part.empty.click(empty_memory, outputs=[message, part.view], **ON_THE_MODEL)


def session(request: gr.Request | None) -> str | None:
    """Which visitor this is; gradio draws the session's name at random when the page is opened."""
    return request.session_hash if request else None


def memory_view(running: Running, visitor: str | None) -> str:
    """Whose the memories are and how full each is, as HTML."""
    whose = f"<p>{WHOSE[running.memories.scope]}{_kept(running.memories)}</p>"
    if running.serving.status.engine is None:
        return f'<div class="memory">{whose}<p class="quiet">{NOT_YET}</p></div>'
    try:
        engine, memories = running.view(visitor)
    except Exception as error:
        return f'<div class="memory">{whose}{notice(sentence(error), "bad")}</div>'
    problem = notice(running.memories.problem, "bad")
    return f'<div class="memory">{whose}{fullness(memories, engine.vocabulary)}{problem}</div>'


def _kept(memories: Memories) -> str:
    return " They are kept when the program ends." if memories.path and not memories.problem else ""


def fullness(memories: Mapping[str, TokenMemory], vocabulary: int) -> str:
    """A table: for each lane's memory and length of keys, how many there are of how many; and what they take."""
    rows = "".join(
        f"<tr><th scope='row'>{LANES[name].name}</th><td>{_keys(order)}</td>"
        f"<td><meter aria-label='how full' min='0' max='{most}' value='{min(len(table), most)}'></meter></td>"
        f"<td>{len(table):,} of {most:,}</td></tr>"
        for name, memory in memories.items()
        for order, table in memory.tables.items()
        if (most := vocabulary if order == 1 else MOST_CONTEXTS) and (order == 1 or table)
    )
    size = sum(memory.size_in_bytes() for memory in memories.values())
    requests = max((memory.requests for memory in memories.values()), default=0)
    return (
        f"<table aria-label='How full the persistent memories are'>{rows}</table>"
        f'<p class="quiet">From {requests:,} request{"" if requests == 1 else "s"}, about {size / 2**20:.1f} MB.</p>'
    )


def _keys(order: int) -> str:
    return f"{('one', 'two', 'three')[order - 1]}-token keys"
