"""One question, and its pictures if it has any, as the model's own inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image

from recap_engine.target import Prefill

Size = tuple[int, int]  # width, height
Reduced = tuple[Size, Size]  # of a picture, before and after it was scaled down


@dataclass
class Request:
    """What all lanes of a comparison share; the prefill is computed once, by the first lane that runs."""

    inputs: dict[str, torch.Tensor]  # input_ids [1, P], and what the family's processor adds for a picture
    question: str = ""
    history: Sequence[tuple[str, str]] = ()  # earlier turns, question and answer
    pictures: Sequence[Image.Image] = ()  # as the model is shown them
    given_sizes: Sequence[Size] = ()  # of each picture before it was made to fit
    image_sha: str | None = None  # SHA-256 of all pictures' pixels
    prefill: Prefill | None = None

    @property
    def prompt_tokens(self) -> int:
        return self.inputs["input_ids"].shape[1]

    @property
    def image_size(self) -> Size | None:
        """Of the first picture, as the model is shown it."""
        return self.pictures[0].size if self.pictures else None

    @property
    def reduced(self) -> list[Reduced]:
        """Every picture that was scaled down."""
        sizes = zip(self.given_sizes, (picture.size for picture in self.pictures), strict=True)
        return [(given, shown) for given, shown in sizes if shown[0] < given[0] or shown[1] < given[1]]
