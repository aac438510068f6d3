"""Where a visitor's picture and question come from: a file of their own, a ready example, or a newly drawn scene."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from html import escape
from pathlib import Path

import gradio as gr
from gradio.data_classes import ImageData
from gradio.utils import get_upload_folder
from PIL import Image

from app import texts
from recap_engine.scenes import FAMILIES, make_example
from recap_engine.scenes.gallery import EXAMPLES


@dataclass(frozen=True)
class ReadyExample:
    """A picture that ships with the page, and what to ask about it."""

    picture: Path
    question: str
    family: str


def take_only_uploads(part: gr.Image | gr.UploadButton) -> None:
    """Have a part of the page take files that were uploaded, and no others, whoever calls it and however."""
    keep = part.async_move_resource_to_block_cache

    async def keep_local(path: str | Path | None) -> str | None:
        if str(path).lower().startswith(("http:", "https:")):  # else gradio would fetch what is there
            raise gr.Error(texts.UPLOAD_ONLY, print_exception=False)
        return await keep(path)

    part.async_move_resource_to_block_cache = keep_local  # type: ignore[method-assign]
    if isinstance(part, gr.Image):
        part.preprocess = as_uploaded  # type: ignore[method-assign]


def as_uploaded(payload: ImageData | None) -> str | None:
    """The picture's file as it was uploaded. Raises gr.Error for a path that no upload gave.

    gradio's own preprocessing would open it first, and answer a broken or huge file with a bare "Error"; the engine's
    `open_image` says what is wrong with it, and knows rotated, transparent, animated and CMYK pictures.
    """
    if payload is None:
        return None
    uploads = Path(get_upload_folder()).resolve()
    if not payload.path or not Path(payload.path).resolve().is_relative_to(uploads):
        raise gr.Error(texts.UPLOAD_ONLY, print_exception=False)
    return payload.path


def read_examples(folder: Path = EXAMPLES) -> list[ReadyExample]:
    """The examples that are there; none if the folder has no list."""
    listing = folder / "examples.json"
    entries = json.loads(listing.read_text(encoding="utf-8")) if listing.exists() else []
    found = [ReadyExample(folder / Path(entry["image"]).name, entry["question"], entry["family"]) for entry in entries]
    return [example for example in found if example.picture.exists()]


def draw_scene() -> tuple[Image.Image, str, str]:
    """A picture never seen before, its question, and a line of HTML that says where it comes from."""
    family, seed = random.choice(FAMILIES), random.randrange(10**6)
    example = make_example(family, seed, split="demo")
    question, true_answer = example.turns[0]
    origin = (
        f'<details class="scene"><summary>Family “{family}”, seed {seed}. Show the true answer</summary>'
        f"{escape(true_answer)}</details>"
    )
    return example.picture, question, origin
