"""Questions of every family that ask for more than a sentence: to count one by one, to compare each, to add up.

Answers run to some 250 tokens. They say what they rest on step by step, as people want it from a model that explains.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from .papers import ChartPicture, ReceiptPicture, SignPicture, TablePicture, money
from .picture import Picture
from .things import Thing, ThingsPicture
from .wording import NUMBERS, ORDINALS, Dialogue, a, amount, are, ask, listed, markdown_table, plural, upper

TWO_IN_ONE = 0.4  # share of these questions that ask for two things at once

Form = Callable[[Any, random.Random], Dialogue]


def _of(forms: Sequence[Form], picture: Picture, rng: random.Random) -> Dialogue:
    """One of the forms, or two of them in one question, answered one after the other."""
    if len(forms) > 1 and rng.random() < TWO_IN_ONE:
        asked = [form(picture, rng).turns[0] for form in rng.sample(forms, 2)]
        return ask(" ".join(question for question, _ in asked), "\n\n".join(answer for _, answer in asked))
    return rng.choice(forms)(picture, rng)


# ---- counting -------------------------------------------------------------------------------------------------------


def count_all(p: ThingsPicture, rng: random.Random) -> Dialogue:
    return _of((_count_kinds, _count_colours, _count_rows), p, rng)


def _grouped(p: ThingsPicture, field: str) -> dict[str, list[Thing]]:
    """Things by kind, colour or row, in the order in which they are met."""
    groups: dict[str, list[Thing]] = {}
    for t in p.things:
        groups.setdefault(getattr(t, field), []).append(t)
    return groups


def _total(p: ThingsPicture) -> str:
    return f"In total there {are(len(p.things))} {amount(len(p.things), 'thing')}."


def _count_kinds(p: ThingsPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        ("How many things of each kind are there? Count them one by one.", "Count the things of each kind, one by one.")
    )
    lines = []
    for kind, found in _grouped(p, "kind").items():
        steps = " ".join(f"{i}. {upper(a(t.name))} {t.place}." for i, t in enumerate(found, start=1))
        lines.append(f"{upper(plural(kind))}: {steps} So there {are(len(found))} {amount(len(found), kind)}.")
    return ask(question, " ".join([*lines, _total(p)]))


def _count_colours(p: ThingsPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        (
            "How many things are there of each color? List them.",
            "Count the things of each color, and say where they are.",
        )
    )
    lines = [
        f"{upper(colour)}: {listed([f'{a(t.name)} {t.place}' for t in found])}, "
        f"so there {are(len(found))} {amount(len(found), f'{colour} thing')}."
        for colour, found in _grouped(p, "colour").items()
    ]
    return ask(question, "\n".join([*lines, _total(p)]))


def _count_rows(p: ThingsPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(("Count everything in the picture, row by row.", "How many things are there in each row?"))
    lines = []
    for row, name in enumerate(("top", "middle", "bottom")):
        found = [t for t in p.things if t.row == row]
        said = f"{listed([f'{a(t.name)} {t.place}' for t in found])}, so" if found else "nothing, so"
        lines.append(f"In the {name} row I see {said} there {are(len(found))} {amount(len(found), 'thing')}.")
    return ask(question, " ".join([*lines, _total(p)]))


# ---- attributes and spatial relations -------------------------------------------------------------------------------


def attributes(p: ThingsPicture, rng: random.Random) -> Dialogue:
    kinds = _grouped(p, "kind")
    single = [found[0] for found in kinds.values() if len(found) == 1]
    forms: list[Form] = [_everything]
    if single:
        forms.append(partial(_around, single))
    if len(single) > 1:
        forms.append(partial(_compare_things, single))
    return _of(forms, p, rng)


def _everything(p: ThingsPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        ("What color and size is everything, and where is it?", "Tell me the color, size and place of everything.")
    )
    style = rng.choice((0, 1, 2))
    if style == 0:
        return ask(question, " ".join(f"The {t.kind} {t.place} is {t.colour}. Its size is {t.size}." for t in p.things))
    if style == 1:
        lines = [
            f"{i}. {upper(a(t.kind))}: it is {t.colour} and {t.size}, and it stands {t.place}."
            for i, t in enumerate(p.things, 1)
        ]
        return ask(question, "\n".join(lines))
    rows = [[t.kind, t.colour, t.size, t.place.removeprefix("at the ").removeprefix("in the ")] for t in p.things]
    return ask(question + " Write a table.", markdown_table(("Thing", "Color", "Size", "Place"), rows))


def _sides(first: Thing, second: Thing) -> str:
    """Where the first stands, seen from the second: "above it and to the left of it"."""
    words = []
    if first.row != second.row:
        words.append("above it" if first.row < second.row else "below it")
    if first.column != second.column:
        words.append("to the left of it" if first.column < second.column else "to the right of it")
    return listed(words)


def _around(single: list[Thing], p: ThingsPicture, rng: random.Random) -> Dialogue:
    t = rng.choice(single)
    question = rng.choice(
        (
            f"Where is the {t.kind}, and what is around it?",
            f"Describe the {t.kind} and where the other things are from it.",
        )
    )
    lines = [f"The {t.kind} is {t.place}. It is {t.size} and {t.colour}."]
    lines += [f"The {other.name} {other.place} is {_sides(other, t)}." for other in p.things if other is not t]
    if len(lines) == 1:
        lines.append("There is nothing around it.")
    return ask(question, " ".join(lines))


def _compare_things(single: list[Thing], p: ThingsPicture, rng: random.Random) -> Dialogue:
    x, y = rng.sample(single, 2)
    lines = [f"The {t.kind} is {t.colour} and {t.size}, and it stands {t.place}." for t in (x, y)]
    for word, equal in (("color", x.colour == y.colour), ("size", x.size == y.size)):
        lines.append(f"They {'have' if equal else 'do not have'} the same {word}.")
    lines.append(f"Seen from the {y.kind}, the {x.kind} is {_sides(x, y)}.")
    return ask(f"Compare the {x.kind} and the {y.kind}.", " ".join(lines))


# ---- charts ---------------------------------------------------------------------------------------------------------


def chart(p: ChartPicture, rng: random.Random) -> Dialogue:
    return _of((_ranked, _compare_neighbours, _chart_table), p, rng)


def _ranked(p: ChartPicture, rng: random.Random) -> Dialogue:
    unit, part = p.unit, p.part
    order = sorted(range(len(p.labels)), key=lambda i: -p.values[i])
    question = rng.choice(
        ("List the values from the highest to the lowest.", f"Describe every {part}, from the highest to the lowest.")
    )
    lines = [
        f"{n}. {p.labels[i]}, the {p.colours[i]} {part}, has a value of {p.values[i]}{unit}."
        for n, i in enumerate(order, 1)
    ]
    high, low = p.values[order[0]], p.values[order[-1]]
    return ask(
        question,
        "\n".join([*lines, f"The highest is {high} - {low} = {high - low}{unit} above the lowest."]),
    )


def _more_or_same(x: str, vx: int, y: str, vy: int, unit: str) -> str:
    """How two numbers compare, by how much, in two sentences."""
    facts = f"{x} has {vx}{unit} and {y} has {vy}{unit}."
    if vx == vy:
        return f"{facts} Both values are the same."
    high, vh, vl = (x, vx, vy) if vx > vy else (y, vy, vx)
    return f"{facts} The difference is {vh} - {vl} = {vh - vl}, so {high} has {vh - vl}{unit} more."


def _compare_neighbours(p: ChartPicture, rng: random.Random) -> Dialogue:
    unit, part = p.unit, p.part
    question = rng.choice((f"Compare each {part} with the one after it.", f"Compare the {part}s one by one."))
    pairs = pairwise(zip(p.labels, p.values))
    return ask(question, " ".join(_more_or_same(x, vx, y, vy, unit) for (x, vx), (y, vy) in pairs))


def _chart_table(p: ChartPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(("Write the chart as a markdown table.", "Copy the values of the chart into a table."))
    rows = [[label, f"{value}{p.unit}", colour] for label, value, colour in zip(p.labels, p.values, p.colours)]
    body = markdown_table((p.title, "Value", "Color"), rows)
    total = "" if p.unit else f"\n\nThe values are {sum(p.values)} in total."
    return ask(question, body + total)


# ---- reading text ---------------------------------------------------------------------------------------------------


def read(p: Picture, rng: random.Random) -> Dialogue:
    if isinstance(p, SignPicture):
        return _read_lines(p, rng)
    return _of((_add_up, _receipt_table, _receipt_lines), p, rng)


def _read_lines(p: SignPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        (
            "Read the sign line by line, and count the words.",
            "What does every line of the sign say, and how many words are there?",
        )
    )
    words = [len(line.split()) for line in p.lines]
    lines = [f"The sign is {p.board} with white text."]
    for i, (line, n) in enumerate(zip(p.lines, words)):
        lines.append(f'The {ORDINALS[i]} line reads "{line}". It has {amount(n, "word")}.')
    return ask(question, " ".join([*lines, f"In total there are {amount(len(words), 'line')} and {sum(words)} words."]))


def _add_up(p: ReceiptPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        ("Read the receipt and add up the prices.", "What was bought? Count up the prices step by step.")
    )
    sums = list(accumulate(p.prices))
    lines = [f"The receipt is from {p.shop}.", f"The first item is {p.items[0]} for {money(p.prices[0])}."]
    for i in range(1, len(p.items)):
        step = f"{money(sums[i - 1])} + {money(p.prices[i])} = {money(sums[i])}"
        lines.append(f"The {ORDINALS[i]} item is {p.items[i]} for {money(p.prices[i])}, and {step}.")
    return ask(question, " ".join([*lines, f"So the total is {money(sums[-1])}."]))


def _receipt_table(p: ReceiptPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(("Write the receipt as a markdown table.", "Copy the receipt into a table."))
    rows = [[item, money(price)] for item, price in zip([*p.items, "Total"], [*p.prices, sum(p.prices)])]
    return ask(question, f"The receipt from {p.shop}:\n\n{markdown_table(('Item', 'Price'), rows)}")


def _receipt_lines(p: ReceiptPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(("Read every line of the receipt.", "Read the receipt line by line."))
    printed = [f"{item} {money(price)}" for item, price in zip([*p.items, "Total"], [*p.prices, sum(p.prices)])]
    return ask(question, "\n".join(f'Line {i} reads "{line}".' for i, line in enumerate([p.shop, *printed], start=1)))


# ---- tables ---------------------------------------------------------------------------------------------------------


def table(p: TablePicture, rng: random.Random) -> Dialogue:
    return _of((_row_by_row, _table_and_best, _sorted_rows), p, rng)


def _row_by_row(p: TablePicture, rng: random.Random) -> Dialogue:
    question = rng.choice(("Read the table row by row.", "What stands in every row of the table?"))
    if rng.random() < 0.5:
        rows = (
            f"The row of {name} shows {listed([f'{h} {c}' for h, c in zip(p.head[1:], cells)])}."
            for name, *cells in p.rows
        )
        return ask(question, "\n".join(rows))
    lines = []
    for name, *cells in p.rows:
        lines += [f"- {name}", *(f"  - {head}: {cell}" for head, cell in zip(p.head[1:], cells))]
    return ask(question, "\n".join(lines))


def _table_and_best(p: TablePicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        (
            "Transcribe the table in markdown and name the highest value of every column.",
            "Write the table as markdown. What is the highest value in each column?",
        )
    )
    lines = []
    for c, head in enumerate(p.head[1:], start=1):
        best = max(int(row[c]) for row in p.rows)
        lines.append(
            f"The highest value of {head} is {best}, for {listed([row[0] for row in p.rows if int(row[c]) == best])}."
        )
    return ask(question, f"{markdown_table(p.head, p.rows)}\n\n{' '.join(lines)}")


def _sorted_rows(p: TablePicture, rng: random.Random) -> Dialogue:
    c = rng.randrange(1, len(p.head))
    head = p.head[c]
    question = rng.choice((f"List all by {head}, the highest first.", f"Who has the most {head}? List all of them."))
    rows = sorted(p.rows, key=lambda row: -int(row[c]))
    lines = [f"{i}. {row[0]} has a value of {row[c]} for {head}." for i, row in enumerate(rows, start=1)]
    lines += [f"So the highest value of {head} is {rows[0][c]} and the lowest is {rows[-1][c]}."]
    return ask(question, "\n".join(lines))


# ---- reasoning in steps ---------------------------------------------------------------------------------------------


def reason(p: Picture, rng: random.Random) -> Dialogue | None:
    """None where there is no single most of what could be asked for."""
    return {
        ThingsPicture: _most_things,
        ChartPicture: _most_in_chart,
        ReceiptPicture: _dearest,
        TablePicture: _most_in_table,
    }[type(p)](p, rng)  # type: ignore[operator]


def _most_things(p: ThingsPicture, rng: random.Random) -> Dialogue:
    question = rng.choice(
        ("Which kind of thing is there most of? Count every kind.", "Are there more of one kind than of the others?")
    )
    kinds = _grouped(p, "kind")
    steps = [
        f"There {are(len(found))} {amount(len(found), kind)}: {listed([f'one {t.place}' for t in found])}."
        for kind, found in kinds.items()
    ]
    most = max(map(len, kinds.values()))
    best = [plural(kind) for kind, found in kinds.items() if len(found) == most]
    end = (
        f"So there are more {best[0]} than other things."
        if len(best) == 1
        else f"So there are as many {' as '.join(best)}."
    )
    return ask(question, " ".join([*steps, f"The highest number is {NUMBERS[most]}.", end]))


def _most(named: list[tuple[str, int]], question: str, words: str, shown: str, has: str) -> Dialogue | None:
    """The one with the most, against each of the others. `shown` formats a value, `has` a name with it."""
    values = [value for _, value in named]
    high = max(values)
    if values.count(high) > 1:
        return None
    best = named[values.index(high)][0]
    show = money if shown == "$" else lambda value: f"{value}{shown}"
    lines = [f"{upper(has.format(name, show(value)))}." for name, value in named]
    lines.append(f"The highest {words} is {show(high)}, so {has.format(best, 'the most')}.")
    for name, value in named:
        if name != best:
            step = f"{show(high)} - {show(value)} = {show(high - value)}"
            lines.append(f"The difference to {'the ' if shown == '$' else ''}{name} is {step}.")
    return ask(question, " ".join(lines))


def _dearest(p: ReceiptPicture, rng: random.Random) -> Dialogue | None:
    question = rng.choice(
        (
            "Which item costs the most, and how much more than each of the others?",
            "What is the most expensive item? Compare it with the others.",
        )
    )
    return _most(list(zip(p.items, p.prices)), question, "price", "$", "the {} costs {}")


def _most_in_chart(p: ChartPicture, rng: random.Random) -> Dialogue | None:
    unit, part = p.unit, p.part
    question = rng.choice(
        (
            "Which has the most, and how much more than each of the others?",
            f"Which {part} is the highest? Compare it with the others.",
        )
    )
    return _most(list(zip(p.labels, p.values)), question, "value", unit, "{} has {}")


def _most_in_table(p: TablePicture, rng: random.Random) -> Dialogue | None:
    c = rng.randrange(1, len(p.head))
    question = rng.choice(
        (
            f"Who has the most {p.head[c]}, and how much more than each of the others?",
            f"Compare the {p.head[c]} of all of them.",
        )
    )
    return _most([(row[0], int(row[c])) for row in p.rows], question, f"value of {p.head[c]}", "", "{} has {}")


ASKERS: dict[str, Callable[[Any, random.Random], Dialogue | None]] = {
    "counting": count_all,
    "attributes": attributes,
    "chart": chart,
    "reading": read,
    "table": table,
    "reasoning": reason,
}
