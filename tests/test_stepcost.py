"""The measured cost curves, by nodes and by context, and what they say about budgets."""

import time
from types import SimpleNamespace

import pytest
from tiny_models import random_request, tiny_engine

from recap_engine import stepcost
from recap_engine.settings import Settings
from recap_engine.stepcost import CONTEXT, LONG, NODE_OVERHEAD_S, SIZES, StepCost

GROWING = StepCost((1.0, 2.0, 4.0), (0.0, 0.001, 0.004))


def test_samples_become_a_rising_interpolated_curve():
    cost = StepCost.from_samples({0: [1.0, 9.0, 1.0], 2: [0.5, 8.0, 0.5], 4: [3.0, 27.0, 4.0]})  # the second was slow
    assert cost.most_nodes == 4
    assert cost.seconds == pytest.approx((1.0, 1.0, 1.0, 2.0, 3.0), abs=5 * NODE_OVERHEAD_S)
    assert list(cost.seconds) == sorted(cost.seconds)
    assert cost.per_token == ()


def test_samples_of_a_longer_context_become_seconds_per_token_beside_the_same_rounds():
    """Rounds of 1, 9 and 2 s: in each, 100 more tokens cost the root half of it and four nodes all of it."""
    short = {0: [1.0, 9.0, 2.0], 2: [2.0, 18.0, 4.0], 4: [3.0, 27.0, 6.0]}
    long = {0: [1.5, 13.5, 3.0], 4: [4.0, 36.0, 8.0]}
    cost = StepCost.from_samples(short, long, further=100)
    assert cost.per_token == pytest.approx((0.01, 0.0125, 0.015, 0.0175, 0.02))  # seconds are the median round's
    faster = {0: [0.5, 4.5, 1.0], 4: [1.0, 9.0, 2.0]}
    assert StepCost.from_samples(short, faster, 100).per_token == (0.0,) * 5, "a longer context is never cheaper"
    unsteady = {0: [4.0, 36.0, 8.0], 4: [3.0, 27.0, 6.0]}
    later = StepCost.from_samples(short, unsteady, 100).at(50_000).seconds
    assert list(later) == sorted(later), "nor a larger tree"


def test_a_cost_at_a_context_lies_on_the_line_and_never_below_the_shortest():
    assert GROWING.at(CONTEXT + 500).seconds == pytest.approx((1.0, 2.5, 6.0))
    assert GROWING.at(CONTEXT + 5000).seconds == pytest.approx((1.0, 7.0, 24.0)), "it goes on beyond what was measured"
    assert GROWING.at(1).seconds == GROWING.at(CONTEXT).seconds == GROWING.seconds
    assert StepCost((1.0, 2.0)).at(9000).seconds == (1.0, 2.0), "a curve of one context is good for all"
    assert StepCost.free(5).at(9000) == StepCost.free(5)


def test_slopes_are_the_cheapest_way_on():
    cost = StepCost((1.0, 3.0, 3.0, 4.0))
    assert cost.slopes == pytest.approx((1.0, 0.0, 1.0))
    assert StepCost.free(3).slopes == (0.0, 0.0, 0.0)
    assert StepCost.free(0).most_nodes == 0


def test_the_curve_is_measured_once_and_kept():
    engine = tiny_engine("qwen3_vl")
    cost = engine.step_cost
    assert cost is engine.step_cost
    assert cost.most_nodes == SIZES[-1] and len(cost.per_token) == len(cost.seconds)
    assert all(second > 0 for second in cost.seconds)
    for context in (CONTEXT, LONG, 10 * LONG):
        seconds = engine.step_cost.at(context).seconds
        assert list(seconds) == sorted(seconds)


def test_both_contexts_are_measured_in_the_same_rounds_and_a_short_model_has_one(monkeypatch):
    """A clock by which a pass takes 1 ms, and 1 ms for each committed token and each node."""
    engine = tiny_engine("llama")
    now, passes = [0.0], []

    def verify(buffer, tree, reads):
        passes.append((buffer.length, len(tree)))
        now[0] += 1e-3 * (1 + buffer.length * (1 + len(tree)))

    monkeypatch.setattr(stepcost, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(engine.target, "verify", verify)
    cost = stepcost.measure(engine.target)
    longest = engine.target.max_position - 16
    assert {length for length, _ in passes} == {CONTEXT, longest}
    assert cost.at(longest).seconds == pytest.approx([1e-3 * (1 + longest * (1 + n)) for n in range(65)], rel=1e-2)
    engine.target.max_position = 2 * CONTEXT
    assert stepcost.measure(engine.target).per_token == ()


def test_measuring_takes_seconds(monkeypatch):
    """However slow the passes are: two rounds of two passes a size at least, and none after SECONDS."""
    engine = tiny_engine("llama")
    monkeypatch.setattr(stepcost, "SECONDS", 0.01)
    rounds = []
    verify = engine.target.verify
    monkeypatch.setattr(engine.target, "verify", lambda *given: (rounds.append(len(given[1])), verify(*given))[1])
    start = time.perf_counter()
    stepcost.measure(engine.target)
    assert rounds.count(1) == 2 * 2 and time.perf_counter() - start < 20


def test_large_trees_are_timed_in_the_first_half_and_small_ones_to_the_end(monkeypatch):
    """A clock by which a pass takes 0.1 s: a round 2.3 s, one without large trees 1.4 s."""
    engine = tiny_engine("llama")
    now, passes = [0.0], []

    def verify(buffer, tree, reads):
        passes.append(len(tree))
        now[0] += 0.1

    monkeypatch.setattr(stepcost, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(engine.target, "verify", verify)
    cost = stepcost.measure(engine.target)
    timed = {size: passes.count(size) for size in (1, 16, 24, 64)}
    assert timed == {1: 10, 16: 15, 24: 4, 64: 7}, "two passes a round, of 16 and 64 nodes a third; 64 warms up too"
    assert cost.seconds == pytest.approx([0.1 + NODE_OVERHEAD_S * n for n in range(65)])


def test_a_request_is_weighed_at_its_own_length():
    engine = tiny_engine("llama")
    engine.step_cost = GROWING
    request = random_request("llama", 0, words=CONTEXT)
    assert engine.cost_for(request, Settings(max_new_tokens=1000)).seconds == pytest.approx((1.0, 2.5, 6.0))
    assert engine.cost_for(request, Settings(max_new_tokens=1000, budget=7)) == StepCost.free(7)
    assert engine.cost_for(random_request("llama", 0, words=3), Settings(max_new_tokens=8)).seconds == GROWING.seconds


def test_dearer_nodes_after_long_text_make_smaller_trees():
    """The same questions, and a curve by which nodes are free after short text and unaffordable after long text."""
    engine = tiny_engine("llama", spread=2.0)
    engine.step_cost = StepCost((1.0,) * 9, tuple(float(n) for n in range(9)))
    sizes = {}
    for words in (CONTEXT // 2, 2 * CONTEXT):
        trace = engine.apart().answer(random_request("llama", 1, words), "recap", Settings(max_new_tokens=16))
        sizes[words] = sum(len(step.tokens) for step in trace.steps)
    assert sizes[CONTEXT // 2] > 0 == sizes[2 * CONTEXT]
