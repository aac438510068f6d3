"""A small drawing surface: pictures are laid out on 224 x 224 units and rendered at any whole multiple of that."""

from __future__ import annotations

from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

UNITS = 224  # side of every drawn picture, in layout units; also the side in pixels that the embedded model sees
TILE = 32  # one visual token of the embedded model covers TILE x TILE units
INK = (40, 42, 54)

Colour = tuple[int, int, int]
Point = tuple[float, float]

COLOURS: dict[str, Colour] = {
    "red": (220, 50, 47),
    "orange": (243, 146, 40),
    "yellow": (247, 210, 50),
    "green": (60, 160, 75),
    "blue": (45, 105, 210),
    "purple": (135, 75, 180),
    "pink": (240, 135, 180),
    "brown": (130, 85, 50),
}


@lru_cache(maxsize=64)
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own scalable font, so that a picture looks the same on every machine."""
    return ImageFont.load_default(size)


def shade(colour: Colour, factor: float) -> Colour:
    """The colour darkened (factor < 1) or lightened towards white (factor > 1)."""
    if factor <= 1:
        return tuple(int(c * factor) for c in colour)  # type: ignore[return-value]
    return tuple(int(255 - (255 - c) / factor) for c in colour)  # type: ignore[return-value]


class Canvas:
    """ImageDraw in layout units. `scale` is pixels per unit."""

    def __init__(self, background: Colour, scale: int = 2) -> None:
        self.scale = scale
        self.image = Image.new("RGB", (UNITS * scale, UNITS * scale), background)
        self._draw = ImageDraw.Draw(self.image)

    def _points(self, *points: Point) -> list[Point]:
        return [(x * self.scale, y * self.scale) for x, y in points]

    def _width(self, width: float) -> int:
        return max(1, round(width * self.scale))

    def box(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        fill: Colour | None,
        line: Colour | None = None,
        width: float = 1.5,
        radius: float = 0,
    ) -> None:
        self._draw.rounded_rectangle(
            self._points((x0, y0), (x1, y1)), radius * self.scale, fill, line, self._width(width)
        )

    def oval(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        fill: Colour | None,
        line: Colour | None = None,
        width: float = 1.5,
    ) -> None:
        self._draw.ellipse(self._points((x0, y0), (x1, y1)), fill, line, self._width(width))

    def polygon(self, points: list[Point], fill: Colour, line: Colour | None = None, width: float = 1.5) -> None:
        self._draw.polygon(self._points(*points), fill, line, self._width(width))

    def line(self, points: list[Point], colour: Colour = INK, width: float = 1.5) -> None:
        self._draw.line(self._points(*points), colour, self._width(width), joint="curve")

    def slice(self, x0: float, y0: float, x1: float, y1: float, start: float, end: float, fill: Colour) -> None:
        self._draw.pieslice(self._points((x0, y0), (x1, y1)), start, end, fill, (255, 255, 255), self._width(1.5))

    def text(self, x: float, y: float, text: str, size: float = 15, colour: Colour = INK, anchor: str = "lm") -> None:
        """Text at (x, y); `anchor` as in Pillow ("lm": left, vertical middle; "mm": centred)."""
        self._draw.text((x * self.scale, y * self.scale), text, colour, font(round(size * self.scale)), anchor)
