"""How many threads a model decodes with."""

import pytest
import torch
from tiny_models import random_request, tiny_engine

from recap_engine import threads
from recap_engine.settings import Settings


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({1: 7.0, 2: 6.0}, 1),  # gains too little
        ({1: 7.0, 2: 5.0}, 2),
        ({1: 7.0, 2: 28.0}, 1),  # a busy machine
        ({1: 8.0, 2: 5.0, 4: 4.8, 6: 3.9}, 6),
        ({1: 8.0, 2: 7.9, 4: 4.0}, 4),
    ],
)
def test_more_threads_are_taken_where_they_are_worth_it(seconds, chosen):
    assert threads.fewest(seconds) == chosen


def test_the_number_is_measured_and_torch_left_as_it_was(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert threads.fit(tiny_engine("qwen3_vl").target) in (1, 2, 3)
        assert torch.get_num_threads() == 3
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert threads.fit(tiny_engine("qwen3_vl").target) is None
    finally:
        torch.set_num_threads(before)


def test_every_pass_runs_with_the_models_own_number(monkeypatch):
    engine = tiny_engine("qwen3_vl")
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    engine.target.threads = 5
    trace = engine.answer(random_request("qwen3_vl", 0), "ar", Settings(max_new_tokens=4))
    assert used == [5] * (1 + trace.n_steps)
    assert engine.machine["threads"] == 5
