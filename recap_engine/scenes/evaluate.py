"""Judges the embedded model on pictures it never saw: `python -m recap_engine.scenes.evaluate`.

Four figures: short closed answers right to the letter; the same with the picture blanked out, next to the score of
the best blind guess, as a model that reads must fall to that; facts right in descriptions; and sentences right to the
letter in answers at length.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from recap_engine.models.loading import EMBEDDED

from . import at_length
from .canvas import COLOURS
from .examples import PICTURES_OF, SAMPLERS, Example, make_example, seeded
from .papers import ChartPicture, ReceiptPicture, TablePicture
from .picture import SIDE, Picture
from .questions import describe
from .things import KINDS, ThingsPicture

CLOSED_FAMILIES = ("counting", "attributes", "chart", "reading", "table")
BLANK = Image.new("RGB", (SIDE, SIDE), (246, 246, 244))

Fact = tuple[str, ...]


class Reader:
    """The model with its processor: one greedy answer at a time."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.processor = AutoProcessor.from_pretrained(folder)
        self.model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).to(device).eval()

    @torch.inference_mode()
    def answer(self, picture: Image.Image, question: str, max_new_tokens: int = 320) -> str:
        content = [{"type": "image", "image": picture}, {"type": "text", "text": question}]
        inputs = self.processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        ).to(self.model.device)
        ids = self.model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
        return self.processor.tokenizer.decode(ids[0, inputs.input_ids.shape[1] :], skip_special_tokens=True)


# ---- facts in descriptions ------------------------------------------------------------------------------------------


def facts_of(picture: Picture) -> set[Fact]:
    """What a description must get right: (colour, kind, place), (label, value), (item, price) or (name, cells)."""
    if isinstance(picture, ThingsPicture):
        return {(t.colour, t.kind, t.place) for t in picture.things}
    if isinstance(picture, ChartPicture):
        return {(label, str(value)) for label, value in zip(picture.labels, picture.values)}
    if isinstance(picture, ReceiptPicture):
        return {(item, f"{price / 2:.2f}") for item, price in zip(picture.items, picture.prices)}
    if isinstance(picture, TablePicture):
        return {tuple(row) for row in picture.rows}
    return set()


_PLACE = r"in the center|at the (?:top|middle|bottom) (?:left|center|right)"
_THING = rf"(?:big|small) ({'|'.join(COLOURS)}) ({'|'.join(KINDS)})"


def facts_in(text: str, picture: Picture) -> set[Fact]:
    """The facts that a description states, in the form of `facts_of`."""
    if isinstance(picture, ThingsPicture):
        after = re.findall(rf"{_THING} ({_PLACE})", text)
        before = re.findall(rf"({_PLACE}) there is an? {_THING}", text, re.IGNORECASE)
        return {*after, *((colour, kind, place.lower().strip()) for place, colour, kind in before)}
    if isinstance(picture, ChartPicture):
        return {
            *re.findall(r"shows (\w+) at (\d+)", text),
            *re.findall(r"(\w+) has an? \w+ \w+ with a value of (\d+)", text),
        }
    if isinstance(picture, ReceiptPicture):
        return {
            *re.findall(r"item is (\w+) for \$([\d.]+\d)", text),
            *re.findall(r"The (\w+) costs \$([\d.]+\d)", text),
        }
    sentences = re.findall(r"(\w+) has ([^.]*)\.", text)
    return {(name, *re.findall(r"\d+", cells)) for name, cells in sentences}


def describe_scores(reader: Reader, kind: str, count: int) -> dict[str, float]:
    """Shares of true facts stated and of stated facts true, over `count` fresh pictures of a kind."""
    stated_right = stated = wanted = tokens = 0
    for seed in range(count):
        rng = seeded("validation", "describe", kind, seed)
        picture = SAMPLERS[kind](rng)
        text = reader.answer(picture.render(), describe(picture, rng).turns[0][0])
        truth, said = facts_of(picture), facts_in(text, picture)
        stated_right, stated, wanted = stated_right + len(truth & said), stated + len(said), wanted + len(truth)
        tokens += len(reader.processor.tokenizer(text).input_ids)
    return {
        "facts_found": stated_right / wanted,
        "facts_true": stated_right / max(stated, 1),
        "facts": wanted,
        "mean_tokens": tokens / count,
    }


# ---- answers at length -----------------------------------------------------------------------------------------------


def sentences_of(text: str) -> set[str]:
    """Sentences, lines of a list and rows of a table; not the rule under a table's head, which is always the same."""
    numbered = re.sub(r"(?m)(?:^|(?<=[.:] ))(\d)\. ", r"\1) ", text)  # so that the number of an item ends no sentence
    parts = re.split(r"(?<=[.:]) (?=[A-Z0-9])|\n+", numbered)
    return {part for part in parts if part and not part.startswith("| ---")}


def truths(ask: at_length.Form, picture: Picture, question: str) -> Iterator[str]:
    """True answers to a question in every phrasing that some draws turn up."""
    for seed in range(300):
        dialogue = ask(picture, random.Random(seed))
        if dialogue and dialogue.turns[0][0] == question:
            yield dialogue.turns[0][1]


def length_scores(reader: Reader, family: str, count: int) -> dict[str, float]:
    """Share of the true sentences that the answer holds to the letter, in the phrasing that it comes nearest to."""
    ask, right, sentences, tokens = at_length.ASKERS[family], 0, 0, 0
    for seed in range(count):
        rng = seeded("validation", "at length", family, seed)
        picture = SAMPLERS[rng.choice(PICTURES_OF[family])](rng)
        while (dialogue := ask(picture, rng)) is None:
            picture = SAMPLERS[rng.choice(PICTURES_OF[family])](rng)
        question, truth = dialogue.turns[0]
        answer = reader.answer(picture.render(), question)
        said = sentences_of(answer)
        wanted = [sentences_of(text) for text in (truth, *truths(ask, picture, question))]
        best = max(wanted, key=lambda true: len(true & said) / len(true))
        right, sentences = right + len(best & said), sentences + len(best)
        tokens += len(reader.processor.tokenizer(answer).input_ids)
    return {"sentences_right": right / sentences, "sentences": sentences, "mean_tokens": tokens / count}


# ---- closed answers -------------------------------------------------------------------------------------------------


def closed_examples(count: int, first_seed: int = 0) -> Iterable[Example]:
    """`count` examples with closed answers, the families in turn."""
    for i in range(count):
        family, seed = CLOSED_FAMILIES[i % len(CLOSED_FAMILIES)], first_seed + 1000 * i
        while not (example := make_example(family, seed, "validation")).closed:
            seed += 1
        yield example


def form(question: str) -> str:
    """What a blind guesser can tell of a question: how it begins."""
    return " ".join(question.split()[:3])


def blind_guess(examples: list[Example]) -> float:
    """Exact-match share of the commonest answer to each form of question, learnt on other pictures."""
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for example in closed_examples(2000, first_seed=10_000_000):
        answers[form(example.turns[0][0])][example.turns[0][1]] += 1
    hits = [e.turns[0][1] == (answers[form(e.turns[0][0])].most_common(1) or [("", 0)])[0][0] for e in examples]
    return sum(hits) / len(hits)


def closed_scores(reader: Reader, examples: list[Example], blank: bool) -> dict[str, float]:
    hits: dict[str, list[bool]] = defaultdict(list)
    for example in examples:
        question, truth = example.turns[0]
        hits[example.family].append(reader.answer(BLANK if blank else example.picture, question, 24).strip() == truth)
    every = [h for family in hits.values() for h in family]
    return {"all": sum(every) / len(every), **{family: sum(h) / len(h) for family, h in hits.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    reader, examples = Reader(args.model, args.device), list(closed_examples(args.pictures))
    figures: dict[str, dict] = {
        "closed": closed_scores(reader, examples, blank=False),
        "closed, picture blanked": closed_scores(reader, examples, blank=True),
        "closed, best blind guess": {"all": blind_guess(examples)},
    }
    for kind in ("things", "chart", "receipt", "table"):
        figures[f"description of {kind}"] = describe_scores(
            reader, kind, args.pictures // 3 if kind == "things" else args.pictures // 15
        )
    for family in at_length.ASKERS:
        figures[f"at length, {family}"] = length_scores(reader, family, args.pictures // 15)
    for name, scores in figures.items():
        print(
            f"{name:26s}", "  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in scores.items())
        )
    if args.json:
        args.json.write_text(json.dumps({"pictures": args.pictures, **figures}, indent=1))


if __name__ == "__main__":
    main()
