"""Questions about drawn pictures with true answers, in seven single-turn families and one of two turns.

A question that ends in "Answer briefly." has one short closed answer (a word, a number, a price); the others are
answered in a sentence or two, or at length, in one of several phrasings. Every answer follows from the picture's facts,
not from its pixels.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from . import at_length
from .canvas import COLOURS
from .papers import COLUMNS as TABLE_COLUMNS
from .papers import (
    ITEMS,
    LABELS,
    NAMES,
    SHOPS,
    SIGN_HEADS,
    SIGN_LINES,
    ChartPicture,
    ReceiptPicture,
    SignPicture,
    TablePicture,
    money,
)
from .picture import Picture
from .things import COLUMNS, GROUNDS, KINDS, ROWS, SIZES, Thing, ThingsPicture
from .wording import (
    NUMBERS,
    ORDINALS,
    Dialogue,
    a,
    amount,
    are,
    ask,
    closed,
    listed,
    markdown_table,
    plural,
    upper,
)

FAMILIES = ("description", "counting", "attributes", "chart", "reading", "table", "reasoning")
TWO_TURN = "two_turn"

AT_LENGTH = 0.5  # share of questions, in the families that have short answers too, that ask for a long one


# ---- description ----------------------------------------------------------------------------------------------------

DESCRIBE = (
    "Describe the picture in detail.",
    "Describe this image in detail.",
    "What does the picture show?",
    "Tell me everything you see.",
    "Please describe what is in the picture.",
)


def describe(picture: Picture, rng: random.Random) -> Dialogue:
    text = {
        ThingsPicture: _describe_things,
        ChartPicture: _describe_chart,
        ReceiptPicture: _describe_receipt,
        SignPicture: _describe_sign,
        TablePicture: _describe_table,
    }[type(picture)](picture, rng)  # type: ignore[operator]
    return ask(rng.choice(DESCRIBE), text)


def _describe_things(p: ThingsPicture, rng: random.Random) -> str:
    ground = f"on a {p.ground}" if p.ground in ("meadow", "beach", "sheet of paper") else f"in a {p.ground}"
    total = amount(len(p.things), "thing")
    style = rng.choice((0, 0, 1, 2))
    if style == 0:
        lines = [f"The picture shows {total} {ground}."]
        lines += [f"{upper(t.place)} there is {a(t.name)}." for t in p.things]
    elif style == 1:
        lines = [f"This is a drawing of {total} {ground}."]
        lines += [f"There is {a(t.name)} {t.place}." for t in p.things]
    else:
        lines = [f"I can see {total} {ground}:"] + [f"\n- {a(t.name)} {t.place}" for t in p.things]
        return "".join(lines) + "\n" + _summary(p)
    lines += [_relation(x, y) for x, y in zip(p.things, p.things[1:]) if x.row == y.row or x.column == y.column][:3]
    return " ".join([*lines, _summary(p), _by_colour_and_size(p)])


def _by_colour_and_size(p: ThingsPicture) -> str:
    colours, sizes = Counter(t.colour for t in p.things), Counter(t.size for t in p.things)
    return (
        f"By color, there {are(next(iter(colours.values())))} "
        f"{listed([amount(n, f'{c} thing') for c, n in colours.items()])}. "
        f"By size, {listed([f'{NUMBERS[n]} of them {are(n)} {s}' for s in ('big', 'small') if (n := sizes[s])])}."
    )


def _relation(first: Thing, second: Thing) -> str:
    if first.row == second.row:
        return f"The {first.colour} {first.kind} is to the left of the {second.colour} {second.kind}."
    return f"The {first.colour} {first.kind} is above the {second.colour} {second.kind}."


def _summary(p: ThingsPicture) -> str:
    kinds = Counter(t.kind for t in p.things)
    return f"In total there {are(next(iter(kinds.values())))} {listed([amount(n, k) for k, n in kinds.items()])}."


def _describe_chart(p: ChartPicture, rng: random.Random) -> str:
    unit, part = p.unit, p.part
    lines = [f'This is a {p.style} chart titled "{p.title}" with {amount(len(p.labels), part)}.']
    style = rng.choice((0, 1))
    for i, (label, value, colour) in enumerate(zip(p.labels, p.values, p.colours)):
        lines.append(
            f"The {ORDINALS[i]} {part} is {colour} and shows {label} at {value}{unit}."
            if style == 0
            else f"{label} has {a(colour)} {part} with a value of {value}{unit}."
        )
    return " ".join([*lines, _extremes(p)])


def _extremes(p: ChartPicture) -> str:
    unit = p.unit
    high, low = max(p.values), min(p.values)
    return (
        f"The highest value is {high}{unit} for {p.labels[p.values.index(high)]} and the lowest is {low}{unit} "
        f"for {p.labels[p.values.index(low)]}."
    )


def _describe_receipt(p: ReceiptPicture, rng: random.Random) -> str:
    lines = [f"This is a receipt from {p.shop}. It lists {amount(len(p.items), 'item')}."]
    style = rng.choice((0, 1))
    for i, (item, price) in enumerate(zip(p.items, p.prices)):
        lines.append(
            f"The {ORDINALS[i]} item is {item} for {money(price)}."
            if style == 0
            else f"The {item} costs {money(price)}."
        )
    dear = p.prices.index(max(p.prices))
    if p.prices.count(max(p.prices)) == 1:
        lines.append(f"The most expensive item is the {p.items[dear]}.")
    return " ".join([*lines, f"The total is {money(sum(p.prices))}."])


def _describe_sign(p: SignPicture, rng: random.Random) -> str:
    lines = [f"The picture shows {a(p.board)} sign on a post with {amount(len(p.lines), 'line')} of white text."]
    lines += [f'The {ORDINALS[i]} line reads "{line}".' for i, line in enumerate(p.lines)]
    return " ".join(lines)


def _describe_table(p: TablePicture, rng: random.Random) -> str:
    lines = [
        f"The picture shows a table with {amount(len(p.rows), 'row')} "
        f"and {amount(len(p.head), 'column')}: {listed(p.head)}."
    ]
    for name, *cells in p.rows:
        lines.append(f"{name} has {listed([f'{head} {cell}' for head, cell in zip(p.head[1:], cells)])}.")
    return " ".join(lines)


# ---- counting -------------------------------------------------------------------------------------------------------


def count(p: ThingsPicture, rng: random.Random) -> Dialogue:
    what = rng.choice(("all", "kind", "kind", "colour"))
    kinds, colours = [t.kind for t in p.things], [t.colour for t in p.things]
    if what == "all":
        noun, plural_noun, found = "thing", "things", p.things
    elif what == "kind":
        kind = rng.choice(kinds) if rng.random() < 0.85 else rng.choice(KINDS)
        noun, plural_noun, found = kind, plural(kind), [t for t in p.things if t.kind == kind]
    else:
        colour = rng.choice(colours)
        noun, plural_noun, found = f"{colour} thing", f"{colour} things", [t for t in p.things if t.colour == colour]
    question = rng.choice(
        ("How many {} are there?", "How many {} do you see?", "How many {} are in the picture?")
    ).format(plural_noun)
    if rng.random() < 0.5:
        return closed(question, str(len(found)))
    if not found:
        return ask(question, f"There are no {plural_noun} in the picture.")
    verb = "is one" if len(found) == 1 else f"are {NUMBERS[len(found)]}"
    name = noun if len(found) == 1 else plural_noun
    if rng.random() < 0.5:
        return ask(question, f"There {verb} {name}: {listed([f'{a(t.name)} {t.place}' for t in found])}.")
    steps = " ".join(f"{i + 1}. {upper(a(t.name))} {t.place}." for i, t in enumerate(found))
    return ask(question + " Count them one by one.", f"{steps} So there {verb} {name}.")


# ---- attributes and spatial relations -------------------------------------------------------------------------------


def attribute(p: ThingsPicture, rng: random.Random) -> Dialogue:
    kinds = Counter(t.kind for t in p.things)
    single = [t for t in p.things if kinds[t.kind] == 1]
    if single and rng.random() < 0.25 and len(single) > 1:
        return _relation_question(rng.sample(single, 2), rng)
    if not single or rng.random() < 0.35:
        return _at_place(rng.choice(p.things), rng)
    t = rng.choice(single)
    what, brief = rng.choice(("colour", "place", "size")), rng.random() < 0.5
    if what == "colour":
        question = rng.choice(
            (f"What color is the {t.kind}?", f"Which color does the {t.kind} have?", f"What colour is the {t.kind}?")
        )
        return (
            closed(question, t.colour)
            if brief
            else ask(
                question,
                rng.choice((f"The {t.kind} {t.place} is {t.colour}.", f"It is {a(t.name)}, and it stands {t.place}.")),
            )
        )
    if what == "place":
        question = rng.choice((f"Where is the {t.kind}?", f"Where in the picture is the {t.kind}?"))
        short = "center" if "center" == t.place.split()[-1] and t.row == 1 else t.place.removeprefix("at the ")
        return (
            closed(question, short)
            if brief
            else ask(
                question,
                rng.choice(
                    (
                        f"The {t.colour} {t.kind} is {t.place}.",
                        f"The {t.kind} is {t.place}. It is {t.size} and {t.colour}.",
                    )
                ),
            )
        )
    question = rng.choice((f"Is the {t.kind} big or small?", f"What size is the {t.kind}?"))
    return closed(question, t.size) if brief else ask(question, f"The {t.colour} {t.kind} {t.place} is {t.size}.")


def _at_place(t: Thing, rng: random.Random) -> Dialogue:
    question = rng.choice((f"What is {t.place}?", f"What do you see {t.place}?"))
    if rng.random() < 0.5:
        return closed(question, a(f"{t.colour} {t.kind}"))
    return ask(question, rng.choice((f"{upper(t.place)} there is {a(t.name)}.", f"There is {a(t.name)} {t.place}.")))


def _relation_question(pair: list[Thing], rng: random.Random) -> Dialogue:
    first, second = pair
    if first.column != second.column and (first.row == second.row or rng.random() < 0.5):
        truth, words = first.column < second.column, ("to the left of", "to the right of")
    else:
        truth, words = first.row < second.row, ("above", "below")
    asked = rng.random() < 0.5
    question = f"Is the {first.kind} {words[0] if asked else words[1]} the {second.kind}?"
    answer = "yes" if asked == truth else "no"
    if rng.random() < 0.5:
        return closed(question, answer)
    return ask(
        question,
        f"{upper(answer)}. The {first.colour} {first.kind} is {first.place} and the {second.colour} "
        f"{second.kind} is {second.place}, so the {first.kind} is {words[0] if truth else words[1]} the {second.kind}.",
    )


# ---- charts ---------------------------------------------------------------------------------------------------------


def chart(p: ChartPicture, rng: random.Random) -> Dialogue:
    unit, part = p.unit, p.part
    i = rng.randrange(len(p.labels))
    label, value, colour = p.labels[i], p.values[i], p.colours[i]
    what, brief = rng.choice(("value", "value", "extreme", "colour", "count", "list", "list")), rng.random() < 0.55
    if what == "value":
        question = rng.choice(
            (
                f"What is the value for {label}?",
                f"How much does {label} have?",
                f"What value does the chart show for {label}?",
            )
        )
        return (
            closed(question, f"{value}{unit}")
            if brief
            else ask(
                question,
                rng.choice(
                    (f"The {colour} {part} for {label} shows {value}{unit}.", f"{label} has a value of {value}{unit}.")
                ),
            )
        )
    if what == "extreme":
        word, best = rng.choice((("highest", max(p.values)), ("lowest", min(p.values))))
        if p.values.count(best) > 1:
            return closed(f"What is the {word} value in the chart?", f"{best}{unit}")
        winner = p.labels[p.values.index(best)]
        question = rng.choice((f"Which {part} is the {word}?", f"What has the {word} value?"))
        return (
            closed(question, winner) if brief else ask(question, f"{winner} has the {word} value, with {best}{unit}.")
        )
    if what == "colour":
        question = f"What color is the {part} for {label}?"
        return closed(question, colour) if brief else ask(question, f"The {part} for {label} is {colour}.")
    if what == "count":
        question = f"How many {part}s does the chart have?"
        return (
            closed(question, str(len(p.labels)))
            if brief
            else ask(question, f"The chart has {amount(len(p.labels), part)}: {listed(p.labels)}.")
        )
    question = rng.choice(("List all values of the chart.", "Read out the chart.", "Which values does the chart show?"))
    if rng.random() < 0.5:
        return ask(question, "\n".join([f"{p.title}:", *(f"- {n}: {v}{unit}" for n, v in zip(p.labels, p.values))]))
    pairs = listed([f"{n} has {v}{unit}" for n, v in zip(p.labels, p.values)])
    return ask(question, f'The chart "{p.title}" shows these values: {pairs}. {_extremes(p)}')


# ---- reading text ---------------------------------------------------------------------------------------------------


def read(p: Picture, rng: random.Random) -> Dialogue:
    return _read_sign(p, rng) if isinstance(p, SignPicture) else _read_receipt(p, rng)  # type: ignore[arg-type]


def _read_sign(p: SignPicture, rng: random.Random) -> Dialogue:
    i = rng.randrange(len(p.lines))
    what = rng.choice(("all", "line", "line", "colour"))
    if what == "colour":
        return closed("What color is the sign?", p.board)
    if what == "line":
        question = rng.choice((f"What does the {ORDINALS[i]} line of the sign say?", f"Read the {ORDINALS[i]} line."))
        return (
            closed(question, p.lines[i])
            if rng.random() < 0.7
            else ask(question, f'The {ORDINALS[i]} line says "{p.lines[i]}".')
        )
    question = rng.choice(("What does the sign say?", "Read the sign.", "What is written on the sign?"))
    return (
        ask(question, f"The {p.board} sign says: {' / '.join(p.lines)}.")
        if rng.random() < 0.5
        else ask(
            question,
            "The sign has "
            + amount(len(p.lines), "line")
            + ":\n"
            + "\n".join(f"{k + 1}. {line}" for k, line in enumerate(p.lines)),
        )
    )


def _read_receipt(p: ReceiptPicture, rng: random.Random) -> Dialogue:
    i = rng.randrange(len(p.items))
    item, price = p.items[i], money(p.prices[i])
    what, brief = rng.choice(("price", "price", "shop", "total", "list", "list", "item")), rng.random() < 0.6
    if what == "price":
        question = rng.choice(
            (f"How much is the {item}?", f"What does the {item} cost?", f"What is the price of the {item}?")
        )
        return (
            closed(question, price)
            if brief
            else ask(
                question,
                rng.choice(
                    (f"The {item} costs {price}.", f"According to the receipt from {p.shop}, the {item} costs {price}.")
                ),
            )
        )
    if what == "shop":
        question = rng.choice(("Which shop is the receipt from?", "What is the name of the shop?"))
        return closed(question, p.shop) if brief else ask(question, f"The receipt is from {p.shop}.")
    if what == "total":
        question = rng.choice(("What is the total?", "How much was paid in total?"))
        return (
            closed(question, money(sum(p.prices)))
            if brief
            else ask(question, f"The total on the receipt from {p.shop} is {money(sum(p.prices))}.")
        )
    if what == "item":
        question = f"What is the {ORDINALS[i]} item on the receipt?"
        return closed(question, item) if brief else ask(question, f"The {ORDINALS[i]} item is {item}, for {price}.")
    question = rng.choice(
        ("List the items with their prices.", "What was bought, and for how much?", "Read the receipt.")
    )
    rows = [f"- {n}: {money(v)}" for n, v in zip(p.items, p.prices)]
    if rng.random() < 0.6:
        return ask(question, "\n".join([f"{p.shop}:", *rows, f"Total: {money(sum(p.prices))}"]))
    return ask(
        question,
        f"The receipt from {p.shop} lists {listed([f'{n} for {money(v)}' for n, v in zip(p.items, p.prices)])}. "
        f"The total is {money(sum(p.prices))}.",
    )


# ---- tables ---------------------------------------------------------------------------------------------------------


def table(p: TablePicture, rng: random.Random) -> Dialogue:
    if rng.random() < 0.5:
        return transcribe(p, rng)
    name, *cells = rng.choice(p.rows)
    c = rng.randrange(len(cells))
    head, cell = p.head[1 + c], cells[c]
    question = rng.choice(
        (
            f"What is the {head} value of {name}?",
            f"Which number stands under {head} for {name}?",
            f"What {head} does {name} have?",
        )
    )
    if rng.random() < 0.65:
        return closed(question, cell)
    return ask(question, f"In the row of {name}, the column {head} shows {cell}.")


def transcribe(p: TablePicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        ("Transcribe the table in markdown.", "Write the table as markdown.", "Copy this table as a markdown table.")
    )
    body = markdown_table(p.head, p.rows)
    if rng.random() < 0.3:
        return ask(question, f"Here is the table with {amount(len(p.rows), 'row')}:\n\n{body}")
    return ask(question, body)


# ---- reasoning in steps ---------------------------------------------------------------------------------------------


def reason(p: Picture, rng: random.Random) -> Dialogue:
    return {
        ThingsPicture: _reason_things,
        ChartPicture: _reason_chart,
        ReceiptPicture: _reason_receipt,
        TablePicture: _reason_table,
    }[type(p)](p, rng)  # type: ignore[operator]


def _reason_receipt(p: ReceiptPicture, rng: random.Random) -> Dialogue:
    i, j = rng.sample(range(len(p.items)), 2)
    (x, px), (y, py) = (p.items[i], p.prices[i]), (p.items[j], p.prices[j])
    question = rng.choice(
        (
            f"Which costs more, the {x} or the {y}, and by how much?",
            f"Is the {x} or the {y} more expensive, and by how much?",
        )
    )
    facts = f"The {x} costs {money(px)} and the {y} costs {money(py)}."
    if px == py:
        return ask(question, f"{facts} Both prices are the same, so neither costs more.")
    (high, ph), (_, pl) = ((x, px), (y, py)) if px > py else ((y, py), (x, px))
    return ask(
        question,
        f"{facts} {money(ph)} is more than {money(pl)}. The difference is {money(ph)} - {money(pl)} = "
        f"{money(ph - pl)}. So the {high} costs more, by {money(ph - pl)}.",
    )


def _reason_numbers(x: str, vx: int, y: str, vy: int, question: str, unit: str = "") -> Dialogue:
    facts = f"{x} has {vx}{unit} and {y} has {vy}{unit}."
    if vx == vy:
        return ask(question, f"{facts} Both values are the same, so neither has more.")
    (high, vh), (low, vl) = ((x, vx), (y, vy)) if vx > vy else ((y, vy), (x, vx))
    return ask(
        question,
        f"{facts} {vh}{unit} is more than {vl}{unit}. The difference is {vh} - {vl} = {vh - vl}. "
        f"So {high} has more than {low}, by {vh - vl}{unit}.",
    )


def _reason_chart(p: ChartPicture, rng: random.Random) -> Dialogue:
    i, j = rng.sample(range(len(p.labels)), 2)
    x, y = p.labels[i], p.labels[j]
    question = rng.choice(
        (
            f"Which has more, {x} or {y}, and by how much?",
            f"Does {x} or {y} have the higher value, and what is the difference?",
        )
    )
    return _reason_numbers(x, p.values[i], y, p.values[j], question, p.unit)


def _reason_table(p: TablePicture, rng: random.Random) -> Dialogue:
    (x, *cx), (y, *cy) = rng.sample(p.rows, 2)
    c = rng.randrange(len(cx))
    question = rng.choice(
        (f"Who has more {p.head[1 + c]}, {x} or {y}, and by how much?", f"Compare the {p.head[1 + c]} of {x} and {y}.")
    )
    return _reason_numbers(x, int(cx[c]), y, int(cy[c]), question)


def _reason_things(p: ThingsPicture, rng: random.Random) -> Dialogue:
    present = sorted({t.kind for t in p.things})
    x = rng.choice(present)
    y = rng.choice([k for k in (present if len(present) > 1 and rng.random() < 0.8 else KINDS) if k != x])
    found = {k: [t for t in p.things if t.kind == k] for k in (x, y)}
    question = rng.choice(
        (f"Are there more {plural(x)} or more {plural(y)}?", f"Which are there more of, {plural(x)} or {plural(y)}?")
    )
    steps = []
    for kind, things in found.items():
        where = f": {listed([f'one {t.place}' for t in things])}" if things else ""
        steps.append(f"There {are(len(things))} {amount(len(things), kind)}{where}.")
    nx, ny = len(found[x]), len(found[y])
    end = (
        "So there are as many of one as of the other."
        if nx == ny
        else (
            f"{upper(NUMBERS[max(nx, ny)])} is more than {NUMBERS[min(nx, ny)] if min(nx, ny) else 'none'}, "
            f"so there are more {plural(x if nx > ny else y)}."
        )
    )
    return ask(question, " ".join([*steps, end]))


# ---- two turns ------------------------------------------------------------------------------------------------------


def follow_up(p: Picture, rng: random.Random) -> Dialogue:
    """A question and a second one that leans on it."""
    if isinstance(p, ReceiptPicture):
        i, j = rng.sample(range(len(p.items)), 2)
        return Dialogue(
            (
                (f"How much is the {p.items[i]}?", f"The {p.items[i]} costs {money(p.prices[i])}."),
                (f"And the {p.items[j]}?", f"The {p.items[j]} costs {money(p.prices[j])}."),
            )
        )
    if isinstance(p, ChartPicture):
        i, j = rng.sample(range(len(p.labels)), 2)
        unit = p.unit
        return Dialogue(
            (
                (f"What is the value for {p.labels[i]}?", f"{p.labels[i]} has a value of {p.values[i]}{unit}."),
                (f"And for {p.labels[j]}?", f"{p.labels[j]} has a value of {p.values[j]}{unit}."),
            )
        )
    first = describe(p, rng)
    second = single_turn(p, rng, long=False)
    return Dialogue((*first.turns, *second.turns))


# ---- choosing -------------------------------------------------------------------------------------------------------


def _or_at_length(family: str, ask_shortly: Callable) -> Callable:
    """Asks for a long answer in a share AT_LENGTH of all cases, if the picture has a question for one."""

    def asked(picture: Picture, rng: random.Random) -> Dialogue:
        long = at_length.ASKERS[family](picture, rng) if rng.random() < AT_LENGTH else None
        return long or ask_shortly(picture, rng)

    return asked


SHORT_ASKERS: dict[str, Callable] = {
    "counting": count,
    "attributes": attribute,
    "chart": chart,
    "reading": read,
    "table": table,
    "reasoning": reason,
}
ASKERS: dict[str, Callable] = {
    "description": describe,
    **{family: _or_at_length(family, asker) for family, asker in SHORT_ASKERS.items()},
    TWO_TURN: follow_up,
}

FAMILIES_OF: dict[type, tuple[str, ...]] = {
    ThingsPicture: ("counting", "attributes", "attributes", "reasoning"),
    ChartPicture: ("chart", "chart", "reasoning"),
    ReceiptPicture: ("reading", "reading", "reasoning"),
    SignPicture: ("reading",),
    TablePicture: ("table", "table", "reasoning"),
}


def single_turn(picture: Picture, rng: random.Random, long: bool) -> Dialogue:
    """A question of any family that fits the picture; `long` asks for the description."""
    return describe(picture, rng) if long else ASKERS[rng.choice(FAMILIES_OF[type(picture)])](picture, rng)


def fact_words() -> set[str]:
    """Every word of an answer that depends on the picture: what the marks name, numbers, plurals, yes and no."""
    printed = (*LABELS, *SIGN_HEADS, *SIGN_LINES, *NAMES, *TABLE_COLUMNS, *ITEMS, *SHOPS[0], *SHOPS[1])
    labels = (label for group in LABELS.values() for label in group)
    drawn = (*KINDS, *map(plural, KINDS), *COLOURS, *SIZES, *ROWS, *COLUMNS, *GROUNDS)
    said = (*NUMBERS, "yes", "no", "none", "left", "right", "above", "below", *"0123456789")
    words = {word for phrase in (*printed, *labels, *drawn, *said) for word in phrase.split()}
    return words - {"this", "the", "to", "of"}  # on signs and sheets of paper, but in every sentence too
