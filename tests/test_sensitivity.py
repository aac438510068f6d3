"""How much the picture matters: against a plain computation, and what comes out on the embedded model."""

from __future__ import annotations

from statistics import mean

import pytest
import torch
from tiny_models import BUILDERS, IMAGE, WORDS, random_request, tiny_engine

from recap_engine import sensitivity
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.scenes import make_example
from recap_engine.scenes.canvas import COLOURS
from recap_engine.sensitivity import measure
from recap_engine.settings import Settings

PICTURED = [kind for kind in BUILDERS if "pixel_values" in random_request(kind, 0).inputs]
FUNCTION_WORDS = {"a", "is", "the", "and", "of", "there", "with", "at", "in", "The", "It", "this"}


def without_picture(inputs):
    return inputs | {"pixel_values": torch.full_like(inputs["pixel_values"], 0.004)}


@torch.no_grad()
def plain_logits(model, inputs, tokens):
    """Logits [tokens, V] that predict each of the answer's tokens, in one pass of the stock model."""
    ids = torch.cat([inputs["input_ids"], torch.tensor([tokens])], dim=1)
    longer = inputs | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if "mm_token_type_ids" in inputs:
        kinds = inputs["mm_token_type_ids"]
        longer["mm_token_type_ids"] = torch.cat([kinds, kinds.new_zeros(1, len(tokens))], dim=1)
    return model(**longer).logits[0, -len(tokens) - 1 : -1].double()


@pytest.mark.parametrize("kind", PICTURED)
def test_it_is_the_divergence_of_the_two_next_token_distributions(kind, monkeypatch):
    engine = tiny_engine(kind, spread=2.0)
    request = random_request(kind, 0)
    tokens = [(7 * number) % WORDS for number in range(17)]
    unseen = without_picture(request.inputs)
    ours, others = (plain_logits(engine.target.model, inputs, tokens) for inputs in (request.inputs, unseen))
    p, q = ours.log_softmax(-1), others.log_softmax(-1)
    expected = (p.exp() * (p - q)).sum(-1)

    monkeypatch.setattr(sensitivity, "CHUNK", 96 * 5)  # five rows at once: 17 tokens are four chunks
    found = measure(engine.target, request.inputs, unseen, tokens)
    assert found.kl == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-6)
    assert found.changed == (ours.argmax(-1) != others.argmax(-1)).tolist()
    assert max(found.kl) > 0.0
    assert found.without.endswith(".")


def test_a_picture_against_itself_moves_nothing():
    engine = tiny_engine("qwen3_vl")
    request = random_request("qwen3_vl", 1)
    found = measure(engine.target, request.inputs, request.inputs, [1, 2, 3])
    assert found.kl == [0.0] * 3
    assert found.changed == [False] * 3


@pytest.mark.parametrize("kind", PICTURED)
def test_a_placeholder_in_an_answer_is_text(kind):
    """A model may say the token that stands for a picture in a prompt; no picture belongs to it."""
    engine = tiny_engine(kind)
    request = random_request(kind, 0)
    with_it, without_it = (
        measure(engine.target, request.inputs, without_picture(request.inputs), [1, token, 2]).kl
        for token in (IMAGE, 5)
    )
    assert with_it[:2] == pytest.approx(without_it[:2])


def test_an_answer_of_one_token_has_one_state():
    engine = tiny_engine("qwen2_5_vl")
    request = random_request("qwen2_5_vl", 1)
    assert len(measure(engine.target, request.inputs, without_picture(request.inputs), [5]).kl) == 1


def test_what_has_no_picture_has_no_sensitivity():
    for kind in ("llama", "qwen3_vl"):
        with pytest.raises(RecapError, match="without a picture"):
            tiny_engine(kind).sensitivity(random_request(kind, 0, picture=False), [1, 2])


def test_prompts_that_differ_cannot_be_compared():
    engine = tiny_engine("llava")
    short, long = (random_request("llava", 0, words=words).inputs for words in (9, 12))
    with pytest.raises(RecapError, match="another prompt"):
        measure(engine.target, short, long, [1, 2])


@pytest.fixture(scope="module")
def embedded():
    return Engine.load(dtype="float32")


def test_a_colour_is_more_image_sensitive_than_a_function_word(embedded):
    colours, functions = [], []
    for seed in range(6000, 6006):
        example = make_example("description", seed, "bench")
        request = embedded.prepare(example.turns[0][0], example.picture)
        lane = embedded.answer(request, "ar", Settings(max_new_tokens=60))
        found = embedded.sensitivity(request, lane.tokens)
        assert len(found.kl) == len(found.changed) == lane.n_tokens
        for token, kl in zip(lane.tokens, found.kl):
            word = embedded.tokenizer.decode([token]).strip()
            colours += [kl] if word in COLOURS else []
            functions += [kl] if word in FUNCTION_WORDS else []
    assert len(colours) >= 6
    assert mean(colours) > 2 * mean(functions)


def test_it_leaves_memories_and_request_as_they_were(embedded):
    example = make_example("description", 6000, "bench")
    request = embedded.prepare(example.turns[0][0], example.picture)
    before = {name: (memory.requests, len(memory.rows)) for name, memory in embedded.memories.items()}
    prompt = request.prompt_tokens
    embedded.sensitivity(request, [1, 2, 3])
    assert {name: (memory.requests, len(memory.rows)) for name, memory in embedded.memories.items()} == before
    assert request.prompt_tokens == prompt
    assert request.prefill is None
