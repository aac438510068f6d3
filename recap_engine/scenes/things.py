"""Scenes of things: up to seven drawn objects with kind, colour, size and place, on four kinds of ground."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from .canvas import COLOURS, INK, Canvas, Colour, shade
from .picture import Marks, Picture, tile

KINDS = (
    "circle",
    "square",
    "triangle",
    "star",
    "heart",
    "house",
    "tree",
    "car",
    "boat",
    "sun",
    "cup",
    "fish",
    "flower",
)
SIZES = {"small": 17.0, "big": 27.0}
ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "center", "right")
GROUNDS = {
    "meadow": ((196, 226, 245), (176, 214, 140)),
    "beach": ((205, 234, 244), (240, 222, 170)),
    "room": ((240, 228, 214), (205, 178, 150)),
    "sheet of paper": ((250, 249, 244), (250, 249, 244)),
}


@dataclass
class Thing:
    """One object. row and column are 0..2; dx and dy shift it a few units from the middle of its place."""

    kind: str
    colour: str
    size: str
    row: int
    column: int
    dx: float = 0.0
    dy: float = 0.0

    @property
    def place(self) -> str:
        row, column = ROWS[self.row], COLUMNS[self.column]
        return "in the center" if (row, column) == ("middle", "center") else f"at the {row} {column}"

    @property
    def name(self) -> str:
        return f"{self.size} {self.colour} {self.kind}"

    @property
    def centre(self) -> tuple[float, float]:
        return 48 + 64 * self.column + self.dx, 48 + 64 * self.row + self.dy


@dataclass
class ThingsPicture(Picture):
    ground: str = "meadow"
    horizon: float = 120.0
    things: list[Thing] = field(default_factory=list)  # in reading order: row by row, left to right

    def paint(self, canvas: Canvas) -> None:
        upper, lower = GROUNDS[self.ground]
        if upper != lower:
            canvas.box(0, self.horizon, 224, 224, lower)
            canvas.line([(0, self.horizon), (224, self.horizon)], shade(lower, 0.85), 1)
        else:
            canvas.box(5, 5, 219, 219, None, (225, 222, 210), 1.5, radius=6)
        for thing in self.things:
            draw_thing(canvas, thing)

    def marks(self) -> Marks:
        return {
            tile(48 + 64 * t.column, 48 + 64 * t.row): [t.kind, t.colour, t.size, ROWS[t.row], COLUMNS[t.column]]
            for t in self.things
        }

    def counts(self) -> dict[str, int]:
        plurals = {f"{kind}s": sum(t.kind == kind for t in self.things) for kind in KINDS if kind != "fish"}
        return plurals | {colour: sum(t.colour == colour for t in self.things) for colour in COLOURS}


def sample_things(rng: random.Random) -> ThingsPicture:
    """A scene with 2 to 7 things; half of them repeat a kind or a colour, so that there is something to count."""
    count = rng.choice((2, 3, 3, 4, 4, 5, 5, 6, 7))
    places = sorted(rng.sample(range(9), count))
    kinds = rng.sample(KINDS, min(len(KINDS), count))
    colours = [rng.choice(tuple(COLOURS)) for _ in range(count)]
    if rng.random() < 0.5:
        pool = rng.sample(KINDS, max(1, count // 2))
        kinds = [rng.choice(pool) for _ in range(count)]
    if rng.random() < 0.3:
        pool = rng.sample(tuple(COLOURS), 2)
        colours = [rng.choice(pool) for _ in range(count)]
    things = [
        Thing(kind, colour, rng.choice(tuple(SIZES)), place // 3, place % 3, rng.uniform(-4, 4), rng.uniform(-4, 4))
        for kind, colour, place in zip(kinds, colours, places)
    ]
    ground = rng.choice(tuple(GROUNDS))
    tint = rng.uniform(1.0, 1.15)
    return ThingsPicture(shade(GROUNDS[ground][0], tint), ground, rng.uniform(100, 150), things)


def draw_thing(canvas: Canvas, thing: Thing) -> None:
    """Draw one object centred on its place; every kind fits a circle of its size's radius."""
    (x, y), r, colour = thing.centre, SIZES[thing.size], COLOURS[thing.colour]
    _PAINTERS[thing.kind](canvas, x, y, r, colour, shade(colour, 0.6))


def _circle(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.oval(x - r, y - r, x + r, y + r, fill, edge)


def _square(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    s = r * 0.88
    c.box(x - s, y - s, x + s, y + s, fill, edge)


def _triangle(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.polygon([(x, y - r), (x + r, y + r * 0.8), (x - r, y + r * 0.8)], fill, edge)


def _star(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    corners = [
        (
            x + (r if i % 2 == 0 else r * 0.42) * math.sin(i * math.pi / 5),
            y - (r if i % 2 == 0 else r * 0.42) * math.cos(i * math.pi / 5),
        )
        for i in range(10)
    ]
    c.polygon(corners, fill, edge)


def _heart(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    angles = [i * 2 * math.pi / 40 for i in range(40)]
    outline = [
        (
            x + r * math.sin(t) ** 3,
            y - r / 16 * (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)),
        )
        for t in angles
    ]
    c.polygon(outline, fill, edge)


def _house(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.box(x - r * 0.75, y - r * 0.1, x + r * 0.75, y + r * 0.95, fill, edge)
    c.polygon([(x, y - r), (x + r, y - r * 0.1), (x - r, y - r * 0.1)], shade(fill, 0.75), edge)
    c.box(x - r * 0.2, y + r * 0.35, x + r * 0.2, y + r * 0.95, (250, 245, 230), edge, 1)


def _tree(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.box(x - r * 0.16, y + r * 0.2, x + r * 0.16, y + r, (110, 78, 50), INK, 1)
    for dx, dy in ((-0.4, 0.0), (0.4, 0.0), (0.0, -0.42)):
        c.oval(x + r * (dx - 0.55), y + r * (dy - 0.55), x + r * (dx + 0.55), y + r * (dy + 0.55), fill, edge, 1)
    c.oval(x - r * 0.5, y - r * 0.6, x + r * 0.5, y + r * 0.4, fill)


def _car(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.polygon(
        [(x - r * 0.55, y), (x - r * 0.35, y - r * 0.5), (x + r * 0.3, y - r * 0.5), (x + r * 0.6, y)],
        (215, 232, 245),
        edge,
    )
    c.box(x - r, y - r * 0.05, x + r, y + r * 0.45, fill, edge, radius=r * 0.15)
    for dx in (-0.55, 0.55):
        c.oval(x + r * (dx - 0.25), y + r * 0.2, x + r * (dx + 0.25), y + r * 0.7, INK)


def _boat(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.line([(x, y - r), (x, y + r * 0.4)], INK, 1.5)
    c.polygon(
        [(x + r * 0.08, y - r * 0.95), (x + r * 0.75, y + r * 0.2), (x + r * 0.08, y + r * 0.2)],
        (252, 252, 248),
        edge,
        1,
    )
    c.polygon(
        [(x - r, y + r * 0.35), (x + r, y + r * 0.35), (x + r * 0.6, y + r * 0.9), (x - r * 0.6, y + r * 0.9)],
        fill,
        edge,
    )


def _sun(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    for i in range(8):
        a = i * math.pi / 4
        c.line(
            [(x + r * 0.6 * math.cos(a), y + r * 0.6 * math.sin(a)), (x + r * math.cos(a), y + r * math.sin(a))],
            edge,
            2,
        )
    c.oval(x - r * 0.58, y - r * 0.58, x + r * 0.58, y + r * 0.58, fill, edge)


def _cup(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.oval(x + r * 0.3, y - r * 0.35, x + r, y + r * 0.35, None, edge, 2.5)
    c.polygon(
        [
            (x - r * 0.8, y - r * 0.75),
            (x + r * 0.6, y - r * 0.75),
            (x + r * 0.45, y + r * 0.8),
            (x - r * 0.65, y + r * 0.8),
        ],
        fill,
        edge,
    )


def _fish(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.polygon([(x + r * 0.45, y), (x + r, y - r * 0.5), (x + r, y + r * 0.5)], fill, edge)
    c.oval(x - r, y - r * 0.52, x + r * 0.6, y + r * 0.52, fill, edge)
    c.oval(x - r * 0.7, y - r * 0.25, x - r * 0.48, y - r * 0.03, INK)


def _flower(c: Canvas, x: float, y: float, r: float, fill: Colour, edge: Colour) -> None:
    c.line([(x, y), (x, y + r)], (70, 130, 70), 2)
    for i in range(5):
        a = i * 2 * math.pi / 5 - math.pi / 2
        px, py = x + r * 0.42 * math.cos(a), y - r * 0.25 + r * 0.42 * math.sin(a)
        c.oval(px - r * 0.32, py - r * 0.32, px + r * 0.32, py + r * 0.32, fill, edge, 1)
    c.oval(x - r * 0.22, y - r * 0.47, x + r * 0.22, y - r * 0.03, (255, 240, 170), edge, 1)


_PAINTERS = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "house": _house,
    "tree": _tree,
    "car": _car,
    "boat": _boat,
    "sun": _sun,
    "cup": _cup,
    "fish": _fish,
    "flower": _flower,
}
