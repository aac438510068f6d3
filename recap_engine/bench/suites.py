"""What is asked: seven suites of drawn pictures, one of two turns, and anyone's own questions in a JSONL file.

A line of such a file is an object with `question`, or `turns` for a conversation; all else is optional: `image` (a path
from the file's folder), `answer` (to the last question), `category` (its suite). Spec-Bench's file is of that form.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path

from PIL import Image

from recap_engine.errors import RecapError
from recap_engine.scenes import FAMILIES, TWO_TURN, Example, suite

CALIBRATION = 7  # questions of a file, all suites together, that budgets are fitted on and nothing is measured on
EARLIER_SEED = 10_000  # from which the pictures that warm memories are drawn
NAMES = (*FAMILIES, TWO_TURN)


@dataclass(frozen=True)
class Case:
    """One conversation about a picture, or about none. A later turn follows the target's own earlier answers."""

    suite: str
    name: str  # a seed, or FILE:LINE
    questions: tuple[str, ...]
    picture: Callable[[], Image.Image | Path | None]
    answer: str | None = None  # words that a right answer to the last question holds, if they are known


@dataclass(frozen=True)
class Suite:
    """Cases that are reported together, and others like them for calibration."""

    name: str
    cases: list[Case]
    calibration: list[Case]
    earlier: list[Case] = field(default_factory=list)  # that memories may have served before


def drawn(name: str, count: int, first_seed: int, warm: int = 0) -> Suite:
    """Fresh pictures of one of NAMES, and `warm` others to warm memories with. Raises RecapError for another name."""
    if name not in NAMES:
        raise RecapError(f"There is no suite {name!r}; there are {', '.join(NAMES)}.")
    held = (("bench", first_seed, count), ("validation", 0, 1), ("validation", EARLIER_SEED, warm))
    return Suite(name, *(list(_drawn(name, number, split, seed)) for split, seed, number in held))


def _drawn(name: str, count: int, split: str, first_seed: int) -> Iterator[Case]:
    """The first `count` that are answered in a sentence or more: a one-word answer is over before there is a step."""
    examples: Iterator[Example] = (e for e in suite(name, 100 * count, split, first_seed) if not e.closed)
    for example in islice(examples, count):
        yield Case(name, str(example.seed), tuple(question for question, _ in example.turns), example.facts.render)


def read(path: Path, count: int | None = None, warm: int = 0) -> list[Suite]:
    """One suite per category of a JSONL file, or of the one such file in a folder; at most `count` cases each.

    Calibration takes the last cases of each suite, up to a third of it; of those that `count` leaves over, `warm` warm
    the memories. Raises RecapError, with the number of the line,
    for a file that isn't of the form above.
    """
    file = _only_file(path)
    cases: dict[str, list[Case]] = {}
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise RecapError(f"{file.name} is not text in UTF-8.") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            case = _case(file, number, line)
            cases.setdefault(case.suite, []).append(case)
    if not cases:
        raise RecapError(f"{file.name} holds no questions.")
    suites = []
    for name, own in cases.items():
        measured = len(own) - min(-(-CALIBRATION // len(cases)), len(own) // 3)
        rest = own[count:measured] if count else []
        suites.append(Suite(name, own[:measured][:count], own[measured:], rest[:warm]))
    return suites


def in_turn(lists: Iterable[Sequence[Case]]) -> list[Case]:
    """All cases, one of each list after another, so that a slow hour of the machine hits all suites alike."""
    return [case for case in chain.from_iterable(zip_longest(*lists)) if case]


def _only_file(path: Path) -> Path:
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    if len(files) != 1:
        raise RecapError(f"{path} is not a file, and holds {len(files)} files that end in .jsonl instead of one.")
    return files[0]


def _case(file: Path, number: int, line: str) -> Case:
    """One line, checked."""

    def check(holds: bool, otherwise: str) -> None:
        if not holds:
            raise RecapError(f"{file.name}, line {number}: {otherwise}.")

    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    check(isinstance(fields, dict), "this is not a JSON object")
    check(("question" in fields) != ("turns" in fields), "it needs either question or turns")
    questions = fields.get("turns", [fields.get("question")])
    check(isinstance(questions, list) and bool(questions), "turns must be a list of questions")
    check(all(map(_is_text, questions)), "a question must be text")
    image, answer, category = fields.get("image"), fields.get("answer"), fields.get("category", file.stem)
    check(image is None or _is_text(image), "image must be the path of a picture")
    picture = None if image is None else file.parent / image
    check(picture is None or picture.is_file(), f"there is no picture {image!r}")
    check(answer is None or _is_text(answer), "answer must be text")
    check(_is_text(category), "category must be text")
    return Case(category, f"{file.name}:{number}", tuple(questions), lambda: picture, answer)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
