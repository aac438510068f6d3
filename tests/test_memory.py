"""How long a memory lives, what it holds, and that nothing a person does half-way spoils it."""

import gc
import random
from dataclasses import replace

import pytest
import torch
from tiny_models import IMAGE, generated, random_request, tiny_engine

from recap_engine.decoders.token_recycling import TOP_K
from recap_engine.errors import RecapError
from recap_engine.memory import NO_TOKEN, PROMPT_STEP, Promises, RequestMemory, prompt_words
from recap_engine.settings import Settings
from recap_engine.stepcost import StepCost
from recap_engine.target import MOST_SEEDS

SETTINGS = Settings(max_new_tokens=24, budget=16)


def living_request_memories() -> int:
    gc.collect()
    return sum(len(m.pairs) + len(m.triples) for m in gc.get_objects() if type(m) is RequestMemory)


def test_contextual_memory_ends_with_the_request_and_token_memory_outlives_it():
    engine = tiny_engine("qwen3_vl")
    trace = engine.answer(random_request("qwen3_vl", 0), "recap", SETTINGS)
    assert trace.steps[-1].memory["order2"] > 0
    assert trace.steps[-1].memory["order3"] > 0
    assert living_request_memories() == 0
    assert len(engine.memories["recap"].rows) == trace.steps[-1].memory["order1"] > 0
    engine.clear_memories()
    assert not engine.memories["recap"].rows


def test_a_second_request_starts_with_the_first_ones_tokens_and_none_of_its_contexts():
    engine = tiny_engine("llama")
    engine.answer(random_request("llama", 0), "recap", SETTINGS)
    known = set(engine.memories["recap"].rows)
    run = engine.run(random_request("llama", 1, words=5), "recap", SETTINGS)
    next(run)
    first = next(run).step
    assert set(engine.memories["recap"].rows) >= known
    assert first.memory["order2"] <= 5 + 1 + len(first.tokens)


def test_recap_plus_keeps_long_keys_until_the_memories_are_emptied():
    engine = tiny_engine("llama")
    engine.answer(random_request("llama", 0), "recap+", SETTINGS)
    memory = engine.memories["recap+"]
    known = set(memory.triples)
    engine.answer(random_request("llama", 1), "recap+", SETTINGS)
    assert len(memory.pairs) > len(memory.rows) and known < set(memory.triples)
    assert {record.written[0] for record in memory.triples.values()} == {1, 2}
    assert not engine.memories["recap"].triples
    engine.clear_memories()
    assert not (memory.rows or memory.pairs or memory.triples)


@pytest.mark.parametrize("lane", ["tr", "recap", "recap+"])
def test_a_cancelled_lane_drops_its_contexts_and_leaves_the_engine_usable(lane):
    engine = tiny_engine("qwen2_5_vl")
    request = random_request("qwen2_5_vl", 1)
    run = engine.run(request, lane, SETTINGS)
    for _ in range(3):
        next(run)
    run.close()
    assert living_request_memories() == 0
    assert engine.memories[lane].rows
    assert engine.answer(request, lane, SETTINGS).tokens == generated(engine, request, 24)


@pytest.mark.parametrize("lane", ["ar", "tr", "recap", "recap+"])
def test_an_error_in_a_pass_drops_contexts_and_leaves_the_engine_usable(lane, monkeypatch):
    engine = tiny_engine("llama")
    request = random_request("llama", 2)
    run = engine.run(request, lane, SETTINGS)
    next(run)
    next(run)
    with monkeypatch.context() as patch:
        patch.setattr(engine.target.model, "forward", _fail)
        with pytest.raises(RuntimeError, match="the device is gone"):
            next(run)
    assert living_request_memories() == 0
    assert engine.answer(request, lane, SETTINGS).tokens == generated(engine, request, 24)


def test_an_unknown_lane_and_an_answer_that_cannot_fit_are_refused_in_one_sentence():
    engine = tiny_engine("llama")
    with pytest.raises(RecapError, match="no lane 'beam'"):
        next(engine.run(random_request("llama", 0), "beam", SETTINGS))
    with pytest.raises(RecapError, match="do not fit this model's 1024 positions"):
        next(engine.run(random_request("llama", 0), "recap", Settings(max_new_tokens=2000)))
    assert living_request_memories() == 0


@pytest.mark.parametrize("lane", ["tr", "recap"])
def test_the_prompts_text_is_remembered_and_its_picture_is_not(lane):
    engine = tiny_engine("qwen3_vl")
    request = random_request("qwen3_vl", 3)
    next(engine.run(request, lane, SETTINGS))
    rows = engine.memories[lane].rows
    assert set(rows) == set(request.inputs["input_ids"][0].tolist()) - {IMAGE}
    assert {record.written for record in rows.values()} == {(1, PROMPT_STEP, True)}
    k = {"tr": TOP_K, "recap": SETTINGS.top_k}[lane]
    assert all(len(record.tokens) == k for record in rows.values())


def test_the_prompt_predicts_what_the_model_would_say_there():
    """A row of the prompt's reading is the target's own next-token distribution at that position."""
    engine = tiny_engine("llama")
    request = random_request("llama", 4, words=9)
    next(engine.run(request, "recap", SETTINGS))
    last = request.inputs["input_ids"][0, -1].item()
    assert engine.memories["recap"].rows[last].tokens[0] == request.prefill.first_token


@pytest.mark.parametrize("lane", ["tr", "recap"])
def test_every_verified_position_is_remembered_and_accepted_ones_win(lane):
    engine = tiny_engine("llama")
    request = random_request("llama", 5)
    run = engine.run(request, lane, SETTINGS)
    next(run)
    for number, progress in enumerate(run):
        step = progress.step
        rows = engine.memories[lane].rows
        path = [step.root_token, *(step.tokens[node] for node in step.accepted)]
        assert all(rows[token].written[:2] == (1, number) for token in {step.root_token, *step.tokens})
        assert all(rows[token].written[2] for token in path)
        assert rows[path[-1]].tokens[0] == step.bonus or lane == "recap", "a blend may still prefer the earlier"
        others = {t for t, d in zip(step.tokens, step.decisions) if d != "accepted"} - set(path)
        assert not any(rows[token].written[2] for token in others)


def test_the_prompts_own_words_are_certain_and_pass_over_pictures():
    words = list(prompt_words([5, 6, 99, 99, 7, 8, 9], [0, 1, 4, 5, 6], request=3))
    assert [context for context, _ in words] == [(NO_TOKEN, NO_TOKEN, 5), (99, 99, 7), (99, 7, 8)]
    assert [record.tokens for _, record in words] == [[6], [8], [9]]
    assert all((r.probabilities, r.entropy, r.written) == ([1.0], 0.0, (3, PROMPT_STEP, True)) for _, r in words)


def test_only_the_last_text_positions_are_seeds_and_recap_plus_has_the_words_of_the_others():
    engine, request = tiny_engine("llama"), random_request("llama", 0)
    prompt = list(range(3, 3 + MOST_SEEDS + 20))
    prefill = engine.target.prefill({"input_ids": torch.tensor([prompt])})
    known = {}
    for lane in ("tr", "recap", "recap+"):
        decoder = engine._decoder(request, lane, replace(SETTINGS, record=False))
        decoder.seed(prefill, engine.target.read_prompt(prefill, decoder.reads))
        known[lane] = set(engine.memories[lane].rows)
        if lane != "tr":
            long = {key: record.tokens for key, record in decoder.longer.triples.items()}
            known[lane, 3] = {key[2] for key in long}
    assert known["tr"] == known["recap"] == known["recap+"] == known["recap", 3] == set(prompt[-MOST_SEEDS:])
    assert known["recap+", 3] == set(prompt)
    assert all(long[tuple(prompt[i - 2 : i + 1])] == [prompt[i + 1]] for i in range(2, 20))
    assert all(prompt[i + 1] in long[tuple(prompt[i - 2 : i + 1])] for i in range(20, len(prompt) - 1))


def test_promises_follow_what_was_kept_and_drift_back_when_nothing_is_drafted():
    promises = Promises()
    assert promises.ratio == 1.0
    for _ in range(100):
        promises.add(2.0, 0.5)
    assert promises.ratio == pytest.approx(0.25, abs=0.03)
    for _ in range(200):
        promises.add(0.0, 0.0)
    assert promises.ratio > 0.9


@pytest.mark.parametrize("truth", [0.2, 0.6, 1.0, 1.3])
def test_promises_times_their_ratio_are_what_is_kept(truth):
    """Drafters that are right `truth` times as often as they say: the ratio finds it, from few steps."""
    rng = random.Random(truth)
    promises, promised, calibrated, kept = Promises(), 0.0, 0.0, 0.0
    for step in range(1000):
        paths = [rng.uniform(0.1, 0.7) for _ in range(rng.randrange(6))]
        hits = sum(rng.random() < path * truth for path in paths)
        if step >= 50:
            promised += sum(paths)
            calibrated += promises.ratio * sum(paths)
            kept += hits
        promises.add(sum(paths), hits)
    assert abs(calibrated - kept) < max(0.1 * kept, 0.1 * abs(promised - kept))


@pytest.mark.parametrize("lane", ["recap", "recap+"])
def test_promises_are_the_drafted_path_probabilities_and_the_accepted_nodes(lane):
    engine = tiny_engine("llama", spread=2.0)
    trace = engine.answer(random_request("llama", 6), lane, SETTINGS)
    expected = Promises()
    for step in trace.steps:
        expected.add(sum(step.path), step.decisions.count("accepted"))
    found = engine.memories[lane].promises
    assert found.steps == expected.steps == len(trace.steps)
    assert (found.promised, found.kept) == (pytest.approx(expected.promised), expected.kept)
    assert found.promised > 0


def test_broken_promises_make_smaller_trees():
    """The same request and memory, once trusted and once known to promise ten times what it keeps."""
    nodes = []
    for promised in (0.0, 1000.0):
        engine = tiny_engine("llama", spread=2.0)
        engine.step_cost = StepCost(tuple(1.0 + 0.01 * n for n in range(17)))
        engine.memories["recap"].promises = Promises(promised, promised / 10)
        trace = engine.answer(random_request("llama", 6), "recap", replace(SETTINGS, budget="auto"))
        nodes.append(sum(len(step.tokens) for step in trace.steps))
    assert nodes[0] > 1.5 * nodes[1]


def _fail(*args, **kwargs):
    raise RuntimeError("the device is gone")
