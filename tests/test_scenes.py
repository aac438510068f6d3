"""Drawn pictures, their questions and the packed batches that train the embedded model."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recap_engine.scenes import FAMILIES, SPLITS, TWO_TURN, make_example
from recap_engine.scenes.batches import IGNORED, Packer
from recap_engine.scenes.evaluate import closed_examples, facts_in, facts_of
from recap_engine.scenes.examples import SAMPLERS, seeded
from recap_engine.scenes.model import GRID, build_model, build_processor, build_tokenizer
from recap_engine.scenes.muon import orthogonalise
from recap_engine.scenes.picture import MARK_SLOTS, SIDE
from recap_engine.scenes.questions import Dialogue, describe, markdown_table


@pytest.fixture(scope="module")
def processor():
    texts = [
        t for f in (*FAMILIES, TWO_TURN) for s in range(60) for turn in make_example(f, s, "train").turns for t in turn
    ]
    return build_processor(build_tokenizer(texts))


@pytest.mark.parametrize("family", (*FAMILIES, TWO_TURN))
def test_same_seed_gives_same_pixels_and_words(family):
    first, second = make_example(family, 7), make_example(family, 7)
    assert first.turns == second.turns
    assert first.picture.tobytes() == second.picture.tobytes()
    assert first.picture.size == (SIDE, SIDE)
    assert len(first.turns) == (2 if family == TWO_TURN else 1)


def test_splits_are_disjoint():
    seen = {split: {repr(make_example("reasoning", s, split).facts) for s in range(200)} for split in SPLITS}
    for split in SPLITS:
        for other in SPLITS:
            assert split == other or not seen[split] & seen[other]


def test_unknown_family_and_split_are_refused_by_name():
    with pytest.raises(ValueError, match="sculpture"):
        make_example("sculpture", 0)
    with pytest.raises(ValueError, match="holdout"):
        make_example("counting", 0, "holdout")


@pytest.mark.parametrize("kind", SAMPLERS)
def test_marks_lie_on_the_picture_and_fit_their_slots(kind):
    for seed in range(100):
        for (row, column), words in SAMPLERS[kind](random.Random(seed)).marks().items():
            assert 0 <= row < GRID and 0 <= column < GRID and len(words) <= MARK_SLOTS


@pytest.mark.parametrize("kind", ("things", "chart", "receipt", "table"))
def test_true_descriptions_state_exactly_the_facts(kind):
    for seed in range(60):
        rng = seeded("validation", kind, seed)
        picture = SAMPLERS[kind](rng)
        text = describe(picture, rng).turns[0][1]
        found = facts_in(text, picture)
        assert facts_of(picture) <= found
        assert kind != "things" or found == facts_of(picture)


def test_closed_examples_are_closed_and_short():
    for example in closed_examples(50):
        assert example.closed and len(example.turns[0][1].split()) <= 5


def test_markdown_table_has_a_rule_under_its_head():
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


@settings(deadline=None, max_examples=60)
@given(text=st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=60))
def test_any_text_survives_the_tokenizer(processor, text):
    plain = processor.tokenizer(text, split_special_tokens=True).input_ids
    assert processor.tokenizer.decode(plain, clean_up_tokenization_spaces=False) == text


def test_a_packed_branch_is_the_same_as_its_own_sequence(processor):
    torch.manual_seed(1)
    model, packer = build_model(processor.tokenizer).eval(), Packer(processor)
    batch = packer.sample_talks(("packed",), 1, 0.5, split="validation", length=120)
    with torch.no_grad():
        packed = model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=batch.attention_mask,
            pixel_values=batch.pixel_values,
            image_grid_thw=batch.image_grid_thw,
        ).logits[0]
        # the last branch alone, through the processor's own template and the model's own positions
        start = int((batch.position_ids[0, 0] == packer.branch_position).nonzero()[-1])
        ids = torch.cat([batch.input_ids[:, : len(packer.prefix)], batch.input_ids[:, start:]], dim=1)
        types = (ids == model.config.image_token_id).int()
        alone = model(
            input_ids=ids, mm_token_type_ids=types, pixel_values=batch.pixel_values, image_grid_thw=batch.image_grid_thw
        ).logits[0]
    torch.testing.assert_close(packed[start:], alone[len(packer.prefix) :], atol=1e-4, rtol=1e-4)


def test_packed_prompt_is_what_the_chat_template_writes(processor):
    packer = Packer(processor)
    example = make_example("counting", 3)
    question, answer = example.turns[0]
    content = [{"type": "image", "image": example.picture}, {"type": "text", "text": question}]
    prompt = (
        processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        .input_ids[0]
        .tolist()
    )
    ids, labels = packer.branch(Dialogue(example.turns))
    assert (packer.prefix + ids)[: len(prompt)] == prompt
    assert processor.tokenizer.decode([i for i in labels if i != IGNORED]) == answer + "<|im_end|>"


def test_orthogonalised_matrices_have_singular_values_near_one():
    for shape in ((32, 96), (96, 32)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert 0.4 < values.min() and values.max() < 1.6
