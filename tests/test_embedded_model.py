"""The embedded model: what is shipped, that it reads, and that every lane is lossless on it in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recap_engine.engine import ALL_LANES, Engine
from recap_engine.scenes import FAMILIES, TWO_TURN, make_example
from recap_engine.scenes.evaluate import BLANK
from recap_engine.settings import Settings

ASSETS = Path(__file__).parents[1] / "assets"
PICTURES_A_FAMILY = 8  # 64 picture-question pairs
FIRST_SEED = 5000  # of the bench split: neither training nor tuning saw them
MEGABYTE = 10**6


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(dtype="float32")


@torch.inference_mode()
def generate(engine: Engine, inputs: dict[str, torch.Tensor], max_new_tokens: int) -> list[int]:
    ids = engine.target.model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
    return ids[0, inputs["input_ids"].shape[1] :].tolist()


def test_files_are_small_enough_for_a_space():
    sizes = [path.stat().st_size for path in ASSETS.rglob("*") if path.is_file()]
    assert max(sizes) < 10 * MEGABYTE
    assert sum(sizes) < 40 * MEGABYTE
    assert not list(ASSETS.rglob("*.bin"))


@pytest.mark.parametrize("family", (*FAMILIES, TWO_TURN))
def test_every_lane_gives_the_ids_of_generate(engine, family):
    """Memories stay hot from picture to picture and from family to family, as on the page."""
    several = 0
    for seed in range(FIRST_SEED, FIRST_SEED + PICTURES_A_FAMILY):
        example = make_example(family, seed, "bench")
        *history, (question, _) = example.turns
        request = engine.prepare(question, example.picture, history)
        wanted = generate(engine, request.inputs, 160)
        for lane in ALL_LANES:
            trace = engine.answer(request, lane, Settings(max_new_tokens=160))
            assert trace.tokens == wanted, f"{lane} differs on {family} {seed}"
            several += lane != "ar" and any(len(step.emitted) > 1 for step in trace.steps)
    assert several, "no step of any lane accepted a candidate"


def test_answers_depend_on_the_picture(engine):
    """A model that goes by its language alone would say the same of a blank picture."""
    changed = 0
    for seed in range(FIRST_SEED, FIRST_SEED + 8):
        example = make_example("description", seed, "bench")
        answers = {
            engine.answer(engine.prepare(example.turns[0][0], picture), "recap", Settings(max_new_tokens=60)).text
            for picture in (example.picture, BLANK)
        }
        changed += len(answers) == 2
    assert changed >= 7
