"""Pictures that are read: bar and pie charts, receipts, signs and tables. Text sits on rows of one tile's height."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .canvas import COLOURS, INK, TILE, Canvas, Colour, shade
from .picture import Marks, Picture, tile

LABELS = {
    "Fruit sold": ("Apples", "Pears", "Plums", "Figs", "Grapes", "Lemons"),
    "Pets owned": ("Cats", "Dogs", "Birds", "Fish", "Frogs", "Mice"),
    "Visitors": ("Rome", "Oslo", "Lima", "Cairo", "Paris", "Tokyo"),
    "Club members": ("Golf", "Chess", "Judo", "Rugby", "Dance", "Yoga"),
    "Rain by day": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "Books by month": ("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
}
ITEMS = (
    "tea",
    "coffee",
    "cake",
    "bread",
    "milk",
    "juice",
    "soup",
    "salad",
    "apple",
    "cheese",
    "butter",
    "honey",
    "rice",
    "pasta",
    "eggs",
    "water",
    "cookie",
    "lemon",
    "pizza",
    "sugar",
    "jam",
    "pie",
    "toast",
    "muffin",
)
SHOPS = (
    ("Luna", "Green", "City", "Corner", "Harbor", "Sunny", "Star", "Park", "River", "Old"),
    ("Cafe", "Market", "Bakery", "Shop", "Deli", "Grill", "Kiosk", "Store"),
)
SIGN_HEADS = (
    "OPEN",
    "CLOSED",
    "STOP",
    "SALE",
    "WELCOME",
    "CAUTION",
    "EXIT",
    "PARKING",
    "LIBRARY",
    "BAKERY",
    "MUSEUM",
    "GARDEN",
    "HOTEL",
    "SCHOOL",
    "STATION",
    "POOL",
)
SIGN_LINES = (
    "this way",
    "wet floor",
    "no dogs",
    "all day",
    "half price",
    "keep left",
    "please knock",
    "slow down",
    "staff only",
    "free entry",
    "ring twice",
    "turn right",
    "mind the step",
    "fresh bread",
    "no parking",
    "open late",
)
NAMES = (
    "Ann",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gus",
    "Ivy",
    "Jo",
    "Kim",
    "Leo",
    "Mia",
    "Nina",
    "Omar",
    "Pia",
    "Sam",
)
COLUMNS = ("Games", "Wins", "Goals", "Age", "Score", "Points", "Days", "Miles")

PAPER: Colour = (252, 251, 247)


def row_y(row: int) -> float:
    """Middle of a row of tiles, in layout units."""
    return TILE * row + TILE / 2


def money(half_dollars: int) -> str:
    return f"${half_dollars // 2}.{'50' if half_dollars % 2 else '00'}"


def digits(text: str) -> list[str | None]:
    return [c for c in text if c.isdigit()]


@dataclass
class ChartPicture(Picture):
    """A bar chart with values written on its bars, or a pie chart with a legend in per cent; all multiples of 5."""

    style: str = "bar"  # "bar" or "pie"
    title: str = ""
    labels: list[str] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    colours: list[str] = field(default_factory=list)

    @property
    def unit(self) -> str:
        return "%" if self.style == "pie" else ""

    @property
    def part(self) -> str:
        return "slice" if self.style == "pie" else "bar"

    def centres(self) -> list[float]:
        """Middle of each bar, in layout units: on the middle of a tile column."""
        columns = {3: (1, 3, 5), 4: (0, 2, 4, 6), 5: (1, 2, 3, 4, 5)}[len(self.labels)]
        return [TILE * c + TILE / 2 for c in columns]

    def paint(self, canvas: Canvas) -> None:
        canvas.text(112, row_y(0), self.title, 17, anchor="mm")
        (self._paint_bars if self.style == "bar" else self._paint_pie)(canvas)

    def _paint_bars(self, canvas: Canvas) -> None:
        half = 12 if len(self.labels) == 5 else 18
        for tick in range(5):
            canvas.line([(6, 192 - tick * 32), (218, 192 - tick * 32)], (226, 226, 222), 0.75)
        for x, label, value, colour in zip(self.centres(), self.labels, self.values, self.colours):
            top = 192 - value * 1.3
            canvas.box(x - half, top, x + half, 192, COLOURS[colour], shade(COLOURS[colour], 0.7), 1)
            canvas.text(x, top - 9, str(value), 14, anchor="mm")
            canvas.text(x, row_y(6), label, 13, anchor="mm")
        canvas.line([(6, 192), (218, 192)], INK, 1.5)

    def _paint_pie(self, canvas: Canvas) -> None:
        start = -90.0
        for i, (label, value, colour) in enumerate(zip(self.labels, self.values, self.colours)):
            canvas.slice(6, 66, 118, 178, start, start + 3.6 * value, COLOURS[colour])
            start += 3.6 * value
            y = row_y(i + 1)
            canvas.box(128, y - 6, 140, y + 6, COLOURS[colour], radius=2)
            canvas.text(145, y, label, 13)
            canvas.text(218, y, f"{value}%", 13, anchor="rm")

    def marks(self) -> Marks:
        out: Marks = {tile(112 - 4.4 * len(self.title), 1): [w for w in self.title.split()]}
        for i, (label, value, colour) in enumerate(zip(self.labels, self.values, self.colours)):
            number = f"{value:02d}"
            described: list[str | None] = [label, colour, *digits(number)]
            if self.style == "bar":
                x = self.centres()[i]
                out[tile(x, row_y(6))] = described
                out[tile(x, 192 - value * 1.3 - 9)] = [None, None, *digits(number)]
            else:
                out[tile(145, row_y(i + 1))] = [*described, str(i + 1)]
        return out


@dataclass
class ReceiptPicture(Picture):
    shop: str = ""
    items: list[str] = field(default_factory=list)
    prices: list[int] = field(default_factory=list)  # in half dollars

    def paint(self, canvas: Canvas) -> None:
        canvas.box(4, 2, 220, 222, PAPER, (214, 210, 200), 1)
        canvas.text(112, row_y(0), self.shop, 18, anchor="mm")
        canvas.line([(12, 32), (212, 32)], (170, 168, 160), 1)
        for i, (item, price) in enumerate(zip(self.items, self.prices)):
            canvas.text(14, row_y(i + 1), item, 16)
            canvas.text(166, row_y(i + 1), money(price), 16)
        y = row_y(len(self.items) + 1)
        canvas.line([(12, y - 15), (212, y - 15)], (170, 168, 160), 1)
        canvas.text(14, y, "Total", 17)
        canvas.text(166, y, money(sum(self.prices)), 16)

    def marks(self) -> Marks:
        out: Marks = {tile(112 - 4.6 * len(self.shop), 1): [w for w in self.shop.split()]}
        for i, (item, price) in enumerate(zip([*self.items, "Total"], [*self.prices, sum(self.prices)])):
            figures = digits(f"{price // 2:02d}.{'50' if price % 2 else '00'}")[:3]
            out[tile(14, row_y(i + 1))] = [item, *figures, str(i + 1)]
            out[tile(166, row_y(i + 1))] = [None, *figures]
        return out


@dataclass
class SignPicture(Picture):
    board: str = "blue"
    lines: list[str] = field(default_factory=list)

    def paint(self, canvas: Canvas) -> None:
        canvas.box(104, 150, 120, 224, (140, 120, 100), INK, 1)
        canvas.box(10, 18, 214, 174, shade(COLOURS[self.board], 0.8), (255, 255, 255), 3, radius=10)
        for i, line in enumerate(self.lines):
            canvas.text(24, row_y(i + 1), line, 24 if i == 0 else 19, (255, 255, 255))

    def marks(self) -> Marks:
        out: Marks = {}
        for i, line in enumerate(self.lines):
            out[tile(24, row_y(i + 1))] = [*line.split(), *[None] * (3 - len(line.split())), str(i + 1), self.board]
        return out


@dataclass
class TablePicture(Picture):
    head: list[str] = field(default_factory=list)  # first is the name column's head
    rows: list[list[str]] = field(default_factory=list)

    def paint(self, canvas: Canvas) -> None:
        lines = [self.head, *self.rows]
        right = self.x(len(self.head)) - 8
        canvas.box(4, 3, right, 32 * len(lines) - 1, PAPER, (120, 124, 135), 1)
        canvas.box(4, 3, right, 30, (222, 230, 240), (120, 124, 135), 1)
        for r, cells in enumerate(lines):
            canvas.line([(4, 32 * r - 1), (right, 32 * r - 1)], (190, 194, 204), 0.75)
            for c, cell in enumerate(cells):
                canvas.text(self.x(c), row_y(r), cell, 14)

    @staticmethod
    def x(column: int) -> float:
        return 10 if column == 0 else 14 + 53 * column

    def marks(self) -> Marks:
        out: Marks = {}
        for r, cells in enumerate([self.head, *self.rows]):
            for c, cell in enumerate(cells):
                number = [*digits(f"{int(cell):02d}"), cells[0], self.head[c]] if cell.isdigit() else []
                out[tile(self.x(c), row_y(r))] = number or [cell, None, str(r), str(c)]
            if r:
                numbers = [d for cell in cells[1:] for d in digits(f"{int(cell):02d}")][:4]
                out[tile(self.x(0), row_y(r))] = [cells[0], str(r), *numbers]
        return out


def sample_chart(rng: random.Random) -> ChartPicture:
    style = rng.choice(("bar", "bar", "pie"))
    title = rng.choice(tuple(LABELS))
    if style == "bar":
        count = rng.choice((3, 4, 5))
        names = list(LABELS[title])
        if count == 5:  # narrow bars: short labels only
            names = [n for n in names if len(n) <= 4]
            if len(names) < 5:
                return sample_chart(rng)
        values = rng.sample(range(5, 100, 5), count)
    else:
        count, names = rng.choice((3, 4)), list(LABELS[title])
        cuts = sorted(rng.sample(range(1, 20), count - 1))
        values = [5 * (b - a) for a, b in zip([0, *cuts], [*cuts, 20])]
        if len(set(values)) < count:
            return sample_chart(rng)
    chosen = set(rng.sample(names, count))
    labels = [n for n in names if n in chosen]  # in their usual order: days and months stay sorted
    return ChartPicture(
        shade((247, 248, 250), rng.uniform(1, 1.5)), style, title, labels, values, rng.sample(tuple(COLOURS), count)
    )


def sample_receipt(rng: random.Random) -> ReceiptPicture:
    count = rng.choice((2, 3, 4, 5))
    return ReceiptPicture(
        rng.choice(((226, 220, 208), (214, 222, 226), (226, 214, 214))),
        " ".join(map(rng.choice, SHOPS)),
        rng.sample(ITEMS, count),
        [rng.randint(2, 19) for _ in range(count)],
    )


def sample_sign(rng: random.Random) -> SignPicture:
    lines = [rng.choice(SIGN_HEADS), *rng.sample(SIGN_LINES, rng.choice((1, 2)))]
    if rng.random() < 0.6:
        start, end = rng.randint(6, 11), rng.randint(12, 22)
        lines.append(f"{start} to {end}")
    return SignPicture(
        rng.choice(((205, 228, 240), (222, 232, 214), (238, 230, 216))), rng.choice(tuple(COLOURS)), lines
    )


def sample_table(rng: random.Random) -> TablePicture:
    columns, rows = rng.choice((1, 2, 2, 3)), rng.choice((3, 4, 5, 6))
    names = rng.sample(NAMES, rows)
    return TablePicture(
        (240, 240, 243),
        ["Name", *rng.sample(COLUMNS, columns)],
        [[name, *(str(rng.randint(1, 30)) for _ in range(columns))] for name in names],
    )
