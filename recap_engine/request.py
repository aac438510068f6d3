"""One question, and its picture if it has one, as the model's own inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image

from recap_engine.target import Prefill


@dataclass
class Request:
    """What all lanes of a comparison share; the prefill is computed once, by the first lane that runs."""

    inputs: dict[str, torch.Tensor]  # input_ids [1, P], and what the family's processor adds for a picture
    question: str = ""
    history: Sequence[tuple[str, str]] = ()  # earlier turns, question and answer
    picture: Image.Image | None = None
    image_sha: str | None = None  # SHA-256 of the picture's pixels
    image_size: tuple[int, int] | None = None  # width, height
    prefill: Prefill | None = None

    @property
    def prompt_tokens(self) -> int:
        return self.inputs["input_ids"].shape[1]
