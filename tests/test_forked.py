"""Runs in a forked process, as on a ZeroGPU Space: nothing is lost on the way back, and Stop crosses over."""

import multiprocessing
import pickle
import time
from dataclasses import replace
from threading import Barrier, Thread

import gradio as gr
import pytest
import torch
from PIL import Image
from test_memory_merge import contents, rounded
from tiny_models import random_request, tiny_engine

from app import texts
from app.forked import LEAST_S, MOST_S, Forked, Work, zero_gpu
from app.lanes import Ask, StopFlag, answer
from recap_engine.blending import blend
from recap_engine.errors import RecapError
from recap_engine.settings import Settings
from recap_engine.trace import LaneTrace

LANES = ("ar", "tr", "recap")
FORK = multiprocessing.get_context("fork")
END = "end"


class Lender:
    """Like `spaces.GPU`: a generator runs in a forked process; what goes in and what comes out is pickled."""

    def __init__(self, reuse=False, waits_s=0.0):
        self.reuse = reuse
        self.waits_s = waits_s  # until it has a GPU to lend
        self.asked = []
        self.sent = []
        self.worker = None
        self.spent = False

    def __call__(self, duration):
        def decorate(task):
            def call(*arguments):
                self.asked.append(duration(*arguments))
                if self.spent:
                    raise gr.Error("You have used up your GPU quota.")
                time.sleep(self.waits_s)
                worker = self.worker if self.reuse and self.worker else self.fork(task)
                self.worker = worker
                requests, reports = worker
                requests.put(pickle.dumps(arguments))
                while (kind := reports.get())[0] != END:
                    self.sent.append(len(kind[1]))
                    yield pickle.loads(kind[1])

            return call

        return decorate

    def fork(self, task):
        requests, reports = FORK.SimpleQueue(), FORK.SimpleQueue()
        FORK.Process(target=serve, args=(task, requests, reports, self.reuse), daemon=True).start()
        return requests, reports


def serve(task, requests, reports, again):
    torch.set_num_threads(1)
    while True:
        for report in task(*pickle.loads(requests.get())):
            reports.put(("report", pickle.dumps(report)))
        reports.put((END, b""))
        if not again:
            return


@pytest.fixture(scope="module")
def loaded():
    engine = tiny_engine("llama")
    engine.prepare = prepare
    return engine


def prepare(question, image=None, history=()):
    if question == "refuse":
        raise RecapError("Please ask a question.")
    if question == "break":
        raise ZeroDivisionError
    return random_request("llama", seed=len(question))


@pytest.fixture
def engine(loaded):
    return loaded.apart()


def asked(question, tokens=16, lanes=LANES):
    return Ask(question, None, lanes, Settings(max_new_tokens=tokens, budget=8))


def run(forked, engine, question):
    *_, last = forked.answer(engine, asked(question), StopFlag())
    return last


def what_was_decided(trace):
    """All of a trace but the times; probabilities and entropies as `contents` has them."""
    decided = {}
    for name, lane in trace.lanes.items():
        probabilities = list(map(rounded, lane.records.probabilities))
        records = replace(lane.records, probabilities=probabilities, entropy=rounded(lane.records.entropy))
        steps = [(step.tokens, step.accepted) for step in lane.steps]
        decided[name] = lane.tokens, lane.stopped, lane.request, records, steps
    return decided


@pytest.mark.parametrize("reuse", [False, True])
def test_a_forked_run_gives_and_leaves_what_an_unforked_one_does(engine, reuse):
    other, forked = engine.apart(), Forked(Lender(reuse))
    for question in ("one", "three", "one"):
        here = list(answer(other, asked(question), StopFlag()))[-1]
        there = run(forked, engine, question)
        assert what_was_decided(there.trace) == what_was_decided(here.trace)
        assert {name: run.state for name, run in there.runs.items()} == dict.fromkeys(LANES, "done")
        assert all(type(run.trace) is LaneTrace for run in there.runs.values())
        for name, memory in engine.memories.items():
            assert contents(memory) == contents(other.memories[name])


def run_at_once(forked, engine, questions, lanes=LANES):
    """Every run has begun, with the same memories, before one goes on."""
    all_begun = Barrier(len(questions))

    def begin(question):
        moments = forked.answer(engine, asked(question, lanes=lanes), StopFlag())
        next(moments)
        all_begun.wait(60)
        list(moments)

    threads = [Thread(target=begin, args=(question,)) for question in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_two_runs_at_once_neither_is_lost(engine):
    forked = Forked(Lender())
    run(forked, engine, "one")
    before = {name: memory.copy() for name, memory in engine.memories.items()}
    run_at_once(forked, engine, ("three", "seven77"))
    for name in LANES[1:]:
        memory = engine.memories[name]
        assert memory.requests == 3
        assert set(memory.pictures) == {1, 2, 3}
        alone = []
        for question in ("three", "seven77"):
            other = engine.apart({key: one.copy() for key, one in before.items()})
            list(answer(other, asked(question), StopFlag()))
            alone.append(set(other.memories[name].rows))
        assert set(memory.rows) == alone[0] | alone[1]
        assert {record.written[0] for record in memory.rows.values()} >= {2, 3}
    assert engine.memories["recap"].promises.steps > before["recap"].promises.steps


def test_a_key_that_two_runs_of_recap_plus_wrote_at_once_holds_both(engine):
    forked, questions, lanes = Forked(Lender()), ("three", "seven77"), ["recap+"]
    list(forked.answer(engine, asked("one", lanes=lanes), StopFlag()))
    before = engine.memories["recap+"].copy()
    run_at_once(forked, engine, questions, lanes)
    alone = []
    for question in questions:
        other = engine.apart({"recap+": before.copy()})
        list(answer(other, asked(question, lanes=lanes), StopFlag()))
        alone.append(other.memories["recap+"].changes_since(before.mark()).tables)
    shared = 0
    for order, table in engine.memories["recap+"].tables.items():
        first, second = (tables[order] for tables in alone)
        assert set(table) == set(before.tables[order]) | set(first) | set(second)
        for key in set(first) & set(second):
            either = blend(first[key], second[key]), blend(second[key], first[key])  # whichever ended first
            assert any(table[key].chances == pytest.approx(one.chances, abs=1e-4) for one in either)
            shared += 1
    assert shared > 10


def test_stop_ends_the_forked_lane_and_keeps_what_there_is(engine):
    forked, stop = Forked(Lender()), StopFlag()
    for moment in forked.answer(engine, asked("one", 900, ["tr"]), stop):
        stop.pressed = stop.pressed or moment.runs["tr"].n_steps > 0
    lane = moment.trace.lanes["tr"]
    assert lane.stopped == "cancelled"
    assert 0 < lane.n_tokens < 900
    assert engine.memories["tr"].rows


def test_a_visitor_who_leaves_ends_the_forked_run(engine):
    lender = Lender(reuse=True)
    forked = Forked(lender)
    moments = forked.answer(engine, asked("one", 900), StopFlag())
    while not next(moments).runs["ar"].n_steps:
        pass
    moments.close()
    _, reports = lender.worker
    left = 0
    while reports.get()[0] != END:
        left += 1
    assert left <= 3, "the process went on for more than the step at hand"


def test_what_is_refused_there_is_told_here_and_what_breaks_is_too(engine):
    lender = Lender()
    forked = Forked(lender)
    with pytest.raises(RecapError, match="Please ask a question"):
        run(forked, engine, "refuse")
    with pytest.raises(RecapError, match=texts.UNEXPECTED):
        run(forked, engine, "break")
    lender.spent = True
    with pytest.raises(RecapError, match="You have used up your GPU quota"):
        run(forked, engine, "one")
    lender.spent = False
    assert run(forked, engine, "one").trace


def test_a_process_with_another_model_is_not_asked(engine):
    lender = Lender(reuse=True)
    forked = Forked(lender)
    run(forked, engine, "one")
    engine.revision = "2"
    with pytest.raises(RecapError, match="Another model was loaded"):
        run(forked, engine, "one")


def test_finished_lanes_travel_once(engine):
    lender = Lender()
    run(Forked(lender), engine, "one")
    assert max(lender.sent[:-1]) < lender.sent[-1]


def test_the_time_asked_for_fits_the_request(engine):
    lender = Lender()
    forked = Forked(lender)
    work = [Work(asked("one", tokens, lanes), engine.binding, {}, None, 0) for tokens, lanes in
            ((8, ["ar"]), (200, ["ar"]), (200, LANES), (8000, LANES))]  # fmt: skip
    seconds = [forked.seconds(one) for one in work]
    assert seconds == sorted(seconds)
    assert seconds[0] >= LEAST_S and seconds[-1] == MOST_S
    run(forked, engine, "one")
    assert LEAST_S <= lender.asked[0] <= MOST_S
    assert forked.seconds(work[2]) != seconds[2], "the pace is a measured one now"


def test_the_wait_for_a_gpu_is_no_part_of_the_pace(engine):
    forked, wait = Forked(Lender(waits_s=3.0)), 3.0
    tokens = sum(lane.n_tokens for lane in run(forked, engine, "one").trace.lanes.values())
    longer = Work(asked("one", 200, LANES), engine.binding, {}, None, 0)
    assert forked.seconds(longer) < wait / tokens * 200 * len(LANES)


def test_that_a_picture_was_made_smaller_is_told_here_too(engine):
    request = random_request("llama", 0)
    request.pictures, request.given_sizes = [Image.new("RGB", (30, 20))], [(90, 60)]
    engine.prepare = lambda question, image=None: request
    assert run(Forked(Lender()), engine, "one").reduced == [((90, 60), (30, 20))]


def test_the_measured_cost_of_steps_comes_back(engine):
    engine.target.step_cost = None
    given = Ask("one", None, ["recap"], Settings(max_new_tokens=4))
    list(Forked(Lender()).answer(engine, given, StopFlag()))
    assert engine.measured_cost is not None


def test_without_a_zerogpu_space_nothing_is_forked():
    assert zero_gpu() is None
