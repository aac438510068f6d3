"""In float32 every lane returns exactly the ids of `model.generate(do_sample=False)`, for every family."""

import pytest
from tiny_models import BUILDERS, generated, random_request, tiny_engine

from recap_engine.engine import ALL_LANES
from recap_engine.settings import Settings

PROMPTS = {"qwen2_5_vl": 20, "qwen3_vl": 20, "llava_next": 20, "llama": 20}  # the others differ little from these
TOKENS = 20


@pytest.mark.parametrize("kind", BUILDERS)
def test_every_lane_gives_the_ids_of_generate(kind):
    """Memories stay hot from prompt to prompt; and the trees really are accepted several tokens deep."""
    engine = tiny_engine(kind)
    longest = dict.fromkeys(ALL_LANES, 0)
    for seed in range(PROMPTS.get(kind, 4)):
        request = random_request(kind, seed)
        expected = generated(engine, request, TOKENS)
        for lane in ALL_LANES:
            trace = engine.answer(request, lane, Settings(max_new_tokens=TOKENS, budget=24))
            assert trace.tokens == expected, (kind, seed, lane)
            longest[lane] = max(longest[lane], *(len(step.accepted) for step in trace.steps))
    assert longest["ar"] == 0
    assert longest["tr"] >= 2
    assert longest["recap"] >= 2


@pytest.mark.parametrize("budget", [0, 1, 8, 80, "auto"])
@pytest.mark.parametrize("lane", ["tr", "recap"])
def test_any_budget_is_lossless(lane, budget):
    engine = tiny_engine("qwen3_vl", seed=1)
    for seed in range(3):
        request = random_request("qwen3_vl", seed)
        trace = engine.answer(request, lane, Settings(max_new_tokens=24, budget=budget))
        assert trace.tokens == generated(engine, request, 24)
        assert all(len(step.tokens) <= (80 if budget == "auto" else budget) for step in trace.steps)


@pytest.mark.parametrize("words", [1, 2, 3, 4, 90])
@pytest.mark.parametrize("lane", ["tr", "recap"])
def test_prompts_shorter_and_longer_than_a_key(lane, words):
    engine = tiny_engine("llama", seed=2)
    request = random_request("llama", seed=words, words=words)
    assert engine.answer(request, lane, Settings(max_new_tokens=24)).tokens == generated(engine, request, 24)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava_next"])
def test_a_vision_model_answers_without_a_picture_after_one_with(kind):
    """Positions of one request leave nothing behind for the next (M-RoPE's delta is state of the stock model)."""
    engine = tiny_engine(kind)
    for picture in (True, False, True):
        request = random_request(kind, seed=3, picture=picture)
        traces = [engine.answer(request, lane, Settings(max_new_tokens=16, budget=16)) for lane in ALL_LANES]
        expected = generated(engine, request, 16)
        assert [trace.tokens for trace in traces] == [expected] * len(ALL_LANES)


@pytest.mark.parametrize("lane", ALL_LANES)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_short_answers_end_at_the_limit(lane, limit):
    engine = tiny_engine("llama")
    request = random_request("llama", seed=0)
    trace = engine.answer(request, lane, Settings(max_new_tokens=limit, budget=16))
    assert trace.tokens == generated(engine, request, limit)
    assert trace.stopped == "length"
    assert len(trace.tokens) == limit


@pytest.mark.parametrize("lane", ALL_LANES)
def test_every_possible_end_of_sequence_is_met(lane):
    """Whichever token of the answer is made the end of sequence, also one inside an accepted path, it ends there."""
    inside_a_path = 0
    plain = tiny_engine("llama")
    request = random_request("llama", seed=4)
    answer = generated(plain, request, 40)
    for eos in dict.fromkeys(answer):
        engine = tiny_engine("llama")
        engine.target.model.generation_config.eos_token_id = [eos, 95]
        expected = generated(engine, request, 40)
        for _ in range(2):  # the second time with a hot memory
            trace = engine.answer(request, lane, Settings(max_new_tokens=40, budget=24))
            assert trace.tokens == expected
            assert trace.stopped == "eos"
            inside_a_path += bool(trace.steps and trace.steps[-1].bonus is None)
    assert (inside_a_path > 0) == (lane != "ar")


def test_a_recorded_run_may_follow_an_unrecorded_one():
    """An unrecorded run of Token Recycling leaves rows without probabilities in the memory they share."""
    engine = tiny_engine("llama")
    request = random_request("llama", seed=6)
    for record in (False, True, False, True):
        settings = Settings(max_new_tokens=24, budget=16, record=record)
        for lane in ALL_LANES:
            assert engine.answer(request, lane, settings).tokens == generated(engine, request, 24)


def test_unrecorded_runs_give_the_same_answer():
    engine = tiny_engine("qwen3_vl")
    request = random_request("qwen3_vl", seed=5)
    for lane in ALL_LANES:
        trace = engine.answer(request, lane, Settings(max_new_tokens=24, budget=16, record=False))
        assert trace.tokens == generated(engine, request, 24)
        assert not any(step.tokens for step in trace.steps)
        assert [trace.first_token, *(token for step in trace.steps for token in step.emitted)] == trace.tokens
