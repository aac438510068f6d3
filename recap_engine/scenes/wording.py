"""The words that questions and answers share: a dialogue, and how numbers, lists and tables are put."""

from collections.abc import Sequence
from dataclasses import dataclass

BRIEF = " Answer briefly."
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True)
class Dialogue:
    """One or two turns about a picture. `closed`: the (first) answer is short and can be checked to the letter."""

    turns: tuple[tuple[str, str], ...]
    closed: bool = False


def ask(question: str, answer: str) -> Dialogue:
    return Dialogue(((question, answer),))


def closed(question: str, answer: str) -> Dialogue:
    return Dialogue(((question + BRIEF, answer),), closed=True)


def plural(kind: str) -> str:
    return {"fish": "fish"}.get(kind, kind + "s")


def amount(count: int, noun: str) -> str:
    """ "one car", "two cars", "no cars"."""
    return f"{NUMBERS[count]} {noun if count == 1 else plural(noun)}"


def are(count: int) -> str:
    """ "is" or "are"."""
    return "is" if count == 1 else "are"


def listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def a(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def upper(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
