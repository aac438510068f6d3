"""What every drawn picture has in common: it can be rendered, and it knows what each of its tiles shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from PIL import Image

from .canvas import TILE, Canvas, Colour

SIDE = 448  # pixels a side of the picture people see
MARK_SLOTS = 6  # words at most that describe one tile

Marks = dict[tuple[int, int], list[str | None]]  # (tile row, tile column) -> up to MARK_SLOTS words


def tile(x: float, y: float) -> tuple[int, int]:
    """The tile (row, column) under a point in layout units, kept inside the picture."""
    return (min(max(int(y // TILE), 0), 6), min(max(int(x // TILE), 0), 6))


@dataclass
class Picture(ABC):
    """A picture as facts. Subclasses hold the facts, paint them, and mark the tiles that show them."""

    background: Colour

    @abstractmethod
    def paint(self, canvas: Canvas) -> None:
        """Draw the facts."""

    @abstractmethod
    def marks(self) -> Marks:
        """What the tiles show: dense labels that teach the vision tower to read before the language model listens."""

    def counts(self) -> dict[str, int]:
        """How many things there are of what a question may ask for, by the word that asks for it."""
        return {}

    def render(self, supersample: bool = True) -> Image.Image:
        """RGB image of SIDE x SIDE pixels; `supersample` smooths edges (what people see) and takes longer."""
        canvas = Canvas(self.background, scale=4 if supersample else 2)
        self.paint(canvas)
        return canvas.image.resize((SIDE, SIDE), Image.Resampling.LANCZOS) if supersample else canvas.image
