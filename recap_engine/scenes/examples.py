"""One entry for everything drawn: a family and a seed give a picture with its questions and true answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image

from .papers import sample_chart, sample_receipt, sample_sign, sample_table
from .picture import Picture
from .questions import ASKERS, FAMILIES, TWO_TURN, Dialogue
from .things import sample_things

SPLITS = ("train", "validation", "demo", "bench")  # disjoint: each draws from its own stream of seeds

SAMPLERS = {
    "things": sample_things,
    "chart": sample_chart,
    "receipt": sample_receipt,
    "sign": sample_sign,
    "table": sample_table,
}
PICTURES_OF = {
    "description": ("things", "things", "things", "chart", "receipt", "table"),
    "counting": ("things",),
    "attributes": ("things",),
    "chart": ("chart",),
    "reading": ("receipt", "sign"),
    "table": ("table",),
    "reasoning": ("receipt", "chart", "table", "things"),
    TWO_TURN: tuple(SAMPLERS),
}


@dataclass(frozen=True)
class Example:
    """A picture and one dialogue about it."""

    family: str
    seed: int
    facts: Picture
    turns: tuple[tuple[str, str], ...]  # (question, true answer)
    closed: bool

    @property
    def picture(self) -> Image.Image:
        return self.facts.render()


def seeded(split: str, *key: int | str) -> random.Random:
    """A generator that depends on the split and the key alone; ValueError for an unknown split."""
    if split not in SPLITS:
        raise ValueError(f"Unknown split {split!r}: choose one of {', '.join(SPLITS)}.")
    return random.Random("/".join(map(str, (split, *key))))


def make_example(family: str, seed: int, split: str = "demo") -> Example:
    """The example of a family (one of FAMILIES, or TWO_TURN) for a seed. Same arguments, same pixels and words."""
    if family not in ASKERS:
        raise ValueError(f"Unknown family {family!r}: choose one of {', '.join((*FAMILIES, TWO_TURN))}.")
    rng = seeded(split, family, seed)
    facts = SAMPLERS[rng.choice(PICTURES_OF[family])](rng)
    dialogue: Dialogue = ASKERS[family](facts, rng)
    return Example(family, seed, facts, dialogue.turns, dialogue.closed)


def suite(family: str, count: int, split: str = "bench", start: int = 0) -> Iterator[Example]:
    """`count` examples of a family with consecutive seeds."""
    return (make_example(family, seed, split) for seed in range(start, start + count))
