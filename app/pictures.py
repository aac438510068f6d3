"""Where a visitor's picture and question come from: a file of their own, a ready example, or a newly drawn scene."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from html import escape
from pathlib import Path

from gradio.data_classes import ImageData
from PIL import Image

from recap_engine.scenes import FAMILIES, make_example
from recap_engine.scenes.gallery import EXAMPLES


@dataclass(frozen=True)
class ReadyExample:
    """A picture that ships with the page, and what to ask about it."""

    picture: Path
    question: str
    family: str


def as_uploaded(payload: ImageData | None) -> str | None:
    """The picture's file as it was uploaded.

    gradio's own preprocessing would open it first, and answer a broken or huge file with a bare "Error"; the engine's
    `open_image` says what is wrong with it, and knows rotated, transparent, animated and CMYK pictures.
    """
    return payload.path if payload else None


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
