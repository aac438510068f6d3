"""Questions that are answered at length: what their answers state is read out of the words and held against facts."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from recap_engine.scenes import at_length
from recap_engine.scenes.at_length import ASKERS
from recap_engine.scenes.evaluate import facts_of, sentences_of, truths
from recap_engine.scenes.examples import PICTURES_OF, SAMPLERS, make_example, seeded
from recap_engine.scenes.papers import ChartPicture, ReceiptPicture, SignPicture, TablePicture
from recap_engine.scenes.questions import AT_LENGTH
from recap_engine.scenes.things import ThingsPicture
from recap_engine.scenes.wording import NUMBERS, plural

PLACE = r"(in the center|at the (?:top|middle|bottom) (?:left|center|right))"


def asked(family, count=150):
    """Pictures with question and answer; those without one (no single most) are left out."""
    kinds = tuple(dict.fromkeys(PICTURES_OF[family]))
    for seed in range(count):
        rng = seeded("validation", "at length", family, seed)
        picture = SAMPLERS[kinds[seed % len(kinds)]](rng)
        if dialogue := ASKERS[family](picture, rng):
            yield picture, *dialogue.turns[0]


def table_rows(answer):
    """Cells of the markdown tables in an answer, without heads and rules."""
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in answer.splitlines() if line[:1] == "|"]
    rules = [i for i, cells in enumerate(lines) if set(cells) == {"---"}]
    return [cells for i, cells in enumerate(lines) if i not in rules and i + 1 not in rules]


@pytest.mark.parametrize("family", ASKERS)
def test_every_sum_and_difference_is_right(family):
    sums = 0
    for _, _, answer in asked(family):
        for left, sign, right, result in re.findall(r"\$?([\d.]*\d) ([-+]) \$?([\d.]*\d) = \$?([\d.]*\d)", answer):
            assert float(left) + (float(right) if sign == "+" else -float(right)) == float(result)
            sums += 1
    assert sums > 50 or family not in ("chart", "reading", "reasoning")


def test_things_are_named_with_their_places_and_counted_right():
    stated = 0
    for picture, question, answer in asked("counting"):
        found = set(re.findall(rf"(big|small) (\w+) (\w+) {PLACE}", answer))
        assert found == {(t.size, t.colour, t.kind, t.place) for t in picture.things}, question
        counts = Counter([t.kind for t in picture.things] + [f"{t.colour} thing" for t in picture.things])
        for number, noun in re.findall(r"[Ss]o there (?:is|are) (\w+) ((?:\w+ )?\w+)[.]", answer):
            if noun not in ("thing", "things"):
                assert any(noun in (name, plural(name)) and NUMBERS[n] == number for name, n in counts.items())
                stated += 1
        assert f"In total there are {NUMBERS[len(picture.things)]} things." in answer
    assert stated > 100


def test_sides_are_those_of_the_picture():
    stated = 0
    for picture, _, answer in asked("attributes"):
        by_name = {(t.name, t.place): t for t in picture.things}
        for kind, text in re.findall(r"(?:^|\n)The (\w+) is [^.]*\. It is [^.]*\.((?: The [^.]*\.)+)", answer):
            (middle,) = [t for t in picture.things if t.kind == kind]
            for name, place, sides in re.findall(rf" The (\w+ \w+ \w+) {PLACE} is ([^.]*)\.", text):
                other = by_name.pop((name, place))
                assert ("above it" in sides) == (other.row < middle.row)
                assert ("below it" in sides) == (other.row > middle.row)
                assert ("to the left of it" in sides) == (other.column < middle.column)
                assert ("to the right of it" in sides) == (other.column > middle.column)
                stated += 1
        for x, y, word in re.findall(
            r"The (\w+) is \w+ and \w+, .*?The (\w+) is \w+ and .*?They have the same (\w+)", answer
        ):
            first, second = ({t.kind: t for t in picture.things}[kind] for kind in (x, y))
            assert first.colour == second.colour if word == "color" else first.size == second.size
    assert stated > 60


def test_everything_is_told_with_color_size_and_place():
    tables = 0
    for picture, question, answer in asked("attributes"):
        if "Write a table" in question:
            rows = {tuple(cells) for cells in table_rows(answer)}
            assert {(t.kind, t.colour, t.size) for t in picture.things} == {cells[:3] for cells in rows}
            assert all(any(t.place.endswith(place) for t in picture.things) for *_, place in rows)
            tables += 1
    assert tables > 5


@pytest.mark.parametrize("family", ("chart", "table"))
def test_tables_and_lists_hold_every_value(family):
    for picture, question, answer in asked(family):
        if rows := table_rows(answer):
            cells = {tuple(cell.rstrip("%") for cell in row) for row in rows}
            wanted = facts_of(picture)
            assert (cells if family == "table" else {row[:2] for row in cells}) == wanted
        if "owest." in question or "irst." in question or "List all" in question:
            values = [int(value) for value in re.findall(r"^\d+\. .* has a value of (\d+)", answer, re.MULTILINE)]
            assert values == sorted(values, reverse=True) and len(values) > 1


def test_receipts_and_signs_are_read_whole():
    for picture, _, answer in asked("reading"):
        if isinstance(picture, SignPicture):
            assert all(f'reads "{line}"' in answer for line in picture.lines)
            assert f"and {sum(len(line.split()) for line in picture.lines)} words" in answer
        else:
            assert all(re.search(rf"\b{item}\b.*?\${price}", answer) for item, price in facts_of(picture))


def test_the_most_is_the_most():
    kinds = Counter()
    for picture, _, answer in asked("reasoning", 400):
        if isinstance(picture, ThingsPicture):
            counts = Counter(t.kind for t in picture.things)
            most = max(counts.values())
            best = [plural(kind) for kind in counts if counts[kind] == most]
            assert f"The highest number is {NUMBERS[most]}." in answer
            assert answer.endswith(
                f"more {best[0]} than other things." if len(best) == 1 else f"as many {' as '.join(best)}."
            )
        else:
            stated = re.findall(r"(\w+) (?:has|costs) \$?([\d.]*\d)", answer.split("The highest")[0])
            best, value = max(stated, key=lambda pair: float(pair[1]))
            assert re.search(rf"is \$?{re.escape(value)}%?, so (?:the )?{best} (?:has|costs) the most\.", answer)
            wanted = {ChartPicture: "labels", ReceiptPicture: "items", TablePicture: "rows"}[type(picture)]
            assert len(stated) == len(getattr(picture, wanted))
        kinds[type(picture)] += 1
    assert len(kinds) == 4 and min(kinds.values()) > 20


def test_where_two_share_the_most_another_question_is_asked():
    picture = SAMPLERS["receipt"](seeded("validation", 1))
    picture.prices = [19] * len(picture.prices)
    assert at_length.reason(picture, seeded("validation", 2)) is None


def test_about_half_of_the_questions_are_long_and_some_ask_for_two_things():
    words = [
        len(answer.split())
        for family in ASKERS
        for seed in range(100)
        for _, answer in make_example(family, seed).turns
    ]
    assert 0.4 * AT_LENGTH < sum(n > 25 for n in words) / len(words) < 0.95
    assert max(words) > 120
    assert sum("\n\n" in answer for _, _, answer in asked("counting")) > 20


def test_an_answer_is_judged_sentence_by_sentence_in_any_of_its_phrasings():
    text = "1. Ann has a value of 9.\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nIt is $1.50. The total is $2.00."
    assert sentences_of(text) == {
        "1) Ann has a value of 9.",
        "| a | b |",
        "| 1 | 2 |",
        "It is $1.50.",
        "The total is $2.00.",
    }
    picture = SAMPLERS["things"](seeded("validation", 3))
    question = "What color and size is everything, and where is it?"
    assert len(set(truths(at_length.attributes, picture, question))) == 2
