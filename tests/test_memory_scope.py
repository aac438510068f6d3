"""Whose memories a request uses: everybody's, or the visitor's own; and what becomes of them."""

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
from app_fakes import FakeEngine
from test_memory_merge import contents
from tiny_models import random_request, tiny_engine

from app import memory_scope
from app.lanes import Ask, StopFlag
from app.memory_panel import fullness, memory_view
from app.memory_scope import Memories, scope_wanted
from app.page import build_page
from app.running import Running
from app.serving import Serving
from recap_engine.errors import RecapError
from recap_engine.settings import Settings

LANES = ("tr", "recap")


def random_prompts():
    """A random model that takes any question: the question's length is the seed of the prompt."""
    engine = tiny_engine("llama")

    def prepare(question, image=None, history=()):
        request = random_request("llama", seed=len(question))
        request.image_sha = f"{len(question):064x}"
        return request

    engine.prepare = prepare
    return engine


@pytest.fixture(scope="module")
def loaded():
    return random_prompts()


@pytest.fixture
def engine(loaded):
    return loaded.apart()


def ask(running, visitor, question):
    """The trace of one run, all of it."""
    given = Ask(question, None, LANES, Settings(max_new_tokens=12, budget=8))
    return list(running.answer(given, StopFlag(), visitor))[-1].trace


def drafted(trace):
    """What a run drafted, and what its trace tells of records, pictures and request numbers."""
    return {
        name: (lane.request, lane.pictures, lane.records.written, [step.tokens for step in lane.steps])
        for name, lane in trace.lanes.items()
    }


def test_nothing_of_one_visitor_shows_in_anothers_run(engine):
    running = Running(Serving(engine), Memories("session"))
    alone = drafted(ask(Running(Serving(engine.apart()), Memories("session")), "anna", "one"))
    for question in ("three", "seven77", "one"):
        ask(running, "bert", question)
    trace = ask(running, "anna", "one")
    assert drafted(trace) == alone
    assert {lane.request for lane in trace.lanes.values()} == {1}
    assert all(set(lane.pictures) == {1} for lane in trace.lanes.values())
    assert not any(memory.rows or memory.requests for memory in engine.memories.values())


def test_a_visitors_own_memories_stay_from_request_to_request_and_go_when_he_leaves(engine):
    running = Running(Serving(engine), Memories("session"))
    assert ask(running, "anna", "one").lanes["recap"].request == 1
    assert ask(running, "anna", "three").lanes["recap"].request == 2
    running.memories.leave("anna")
    assert ask(running, "anna", "one").lanes["recap"].request == 1


def test_a_caller_without_a_session_keeps_nothing(engine):
    running = Running(Serving(engine), Memories("session"))
    assert {ask(running, None, "one").lanes["tr"].request for _ in range(2)} == {1}


def test_shared_memories_are_everybodys(engine):
    running = Running(Serving(engine), Memories("shared"))
    ask(running, "bert", "one")
    assert ask(running, "anna", "one").lanes["recap"].request == 2


def test_visitors_who_came_longest_ago_go_first(engine, monkeypatch):
    memories = Memories("session")
    running = Running(Serving(engine), memories)
    monkeypatch.setattr(memory_scope, "MOST_VISITORS", 2)
    for visitor in ("anna", "bert", "anna", "carl"):
        ask(running, visitor, "one")
    assert [ask(running, visitor, "one").lanes["tr"].request for visitor in ("anna", "bert")] == [3, 1]
    monkeypatch.setattr(memory_scope, "MOST_RECORDS", 10)
    ask(running, "anna", "one")
    assert not any(memory.rows for memory in memories.view(engine, "bert").values())


def test_a_swapped_model_is_let_go_and_begins_with_empty_memories(engine):
    memories = Memories("session")
    old = tiny_engine("llama")
    gone = weakref.ref(old.target)
    memories.engine(old, "anna").memories["tr"].begin(None)
    assert memories.engine(engine, "anna").memories["tr"].requests == 0
    del old
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("given", "environment", "scope"),
    [
        (None, {}, "shared"),
        (None, {"SPACE_ID": "me/demo"}, "session"),
        (None, {"SPACE_ID": "me/demo", "RECAP_MEMORY_SCOPE": "shared"}, "shared"),
        ("session", {"RECAP_MEMORY_SCOPE": "shared"}, "session"),
    ],
)
def test_the_host_chooses_the_scope(monkeypatch, given, environment, scope):
    for name in ("SPACE_ID", "RECAP_MEMORY_SCOPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert scope_wanted(given) == scope
    assert ("yours alone" in memory_view(Running(Serving(), Memories(scope)), None)) == (scope == "session")
    monkeypatch.setenv("RECAP_MEMORY_SCOPE", "mine")
    with pytest.raises(RecapError, match="shared or session"):
        scope_wanted()


def test_shared_memories_outlive_the_program(engine, tmp_path):
    path = tmp_path / "memory.safetensors"
    memories = Memories("shared", path)
    ask(Running(Serving(engine), memories), None, "one")
    assert not path.exists(), "not after every request"
    memories.keep(now=True)
    again = engine.apart()
    assert ask(Running(Serving(again), Memories("shared", path)), None, "three").lanes["recap"].request == 2
    written = path.stat().st_mtime_ns
    memories.keep(now=True)
    assert path.stat().st_mtime_ns == written, "nothing new, nothing written"


def test_memories_are_saved_after_a_request_once_the_interval_is_over(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(memory_scope, "SAVE_INTERVAL_S", 0.0)
    ask(Running(Serving(engine), Memories("shared", tmp_path / "m")), None, "one")
    assert (tmp_path / "m").exists()


def test_a_file_of_another_model_stays_as_it_is_and_the_page_says_so(engine, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"something else")
    memories = Memories("shared", path)
    running = Running(Serving(engine), memories)
    ask(running, None, "one")
    memories.keep(now=True)
    assert path.read_bytes() == b"something else"
    assert "stays as it is" in memory_view(running, None)
    assert str(tmp_path) not in memory_view(running, None)


def test_a_visitors_memories_are_never_kept_in_a_file(engine, tmp_path):
    memories = Memories("session", tmp_path / "m")
    ask(Running(Serving(engine), memories), "anna", "one")
    memories.keep(now=True)
    assert not (tmp_path / "m").exists()


def test_a_swapped_models_memories_are_saved_for_its_return(engine, tmp_path):
    memories = Memories("shared", tmp_path / "m")
    running = Running(Serving(engine), memories)
    ask(running, None, "one")
    other = tiny_engine("llama")
    other.model_name = "another"
    memories.view(other, None)
    assert "another model" in memories.problem
    again = engine.apart()
    memories.view(again, None)
    assert not memories.problem
    assert contents(again.memories["tr"]) == contents(engine.memories["tr"])


ENDED = """
import sys, threading, time
sys.path += [{tests!r}, {root!r}]
from tiny_models import random_request, tiny_engine
from app.memory_scope import Memories
from app.private_files import end_as_asked
from recap_engine.settings import Settings
end_as_asked()
engine, memories = tiny_engine("llama"), Memories("shared", {path!r})
memories.keep_at_exit()

def work():
    seed = 0
    while True:
        own = memories.engine(engine, None)
        own.answer(random_request("llama", seed), "recap", Settings(max_new_tokens=64, budget=16))
        seed += 1
        if seed == 3:
            print("ready", flush=True)

threading.Thread(target=work, daemon=True).start()
time.sleep(60)
"""


def test_a_program_that_is_ended_during_a_run_saves_what_it_learnt(engine, tmp_path):
    path, tests = tmp_path / "m", Path(__file__).parent
    code = ENDED.format(tests=str(tests), root=str(tests.parent), path=str(path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert os.listdir(tmp_path) == ["m"]
    engine.load_memories(path)
    assert engine.memories["recap"].requests >= 3


KILLED = """
import sys
sys.path += [{tests!r}, {root!r}]
from recap_engine.settings import Settings
from tiny_models import random_request, tiny_engine
engine = tiny_engine("llama")
engine.answer(random_request("llama", 0), "recap+", Settings(max_new_tokens=64, budget=16))
while True:
    engine.save_memories({path!r})
    print("saved", flush=True)
"""


def test_a_program_that_is_killed_while_it_saves_leaves_a_whole_file(engine, tmp_path):
    path, tests = tmp_path / "m", Path(__file__).parent
    code = KILLED.format(tests=str(tests), root=str(tests.parent), path=str(path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        for moment in range(3):
            assert process.stdout.readline() == b"saved\n"
            time.sleep(0.001 * moment)
        process.kill()
    engine.load_memories(path)
    assert engine.memories["recap+"].rows


def handler(page, name):
    return next(fn.fn for fn in page.fns.values() if fn.name == name)


def test_the_panel_saves_loads_empties_and_says_how_full(engine, tmp_path):
    running = Running(Serving(engine), Memories("session"))
    page = build_page(running.serving, running=running)
    anna, bert = (SimpleNamespace(session_hash=name) for name in ("anna", "bert"))
    ask(running, "anna", "one")
    rows = len(running.view("anna")[1]["recap"].rows)
    assert f"{rows} of 96" in handler(page, "show_memory")(anna)
    assert "yours alone" in handler(page, "show_memory")(anna)
    assert f"{rows} of 96" not in handler(page, "show_memory")(bert)
    saving = handler(page, "save_memory")(anna)
    file = next(value for part, value in next(saving).items() if isinstance(part, gr.DownloadButton))
    (tmp_path / "m").write_bytes(Path(file).read_bytes())
    saving.close()
    assert "0 of 96" in handler(page, "empty_memory")(anna)[1]
    told, view = handler(page, "load_memory")(str(tmp_path / "m"), bert)
    assert "of the file" in told and f"{rows} of 96" in view
    (tmp_path / "m").write_bytes(b"no")
    told, view = handler(page, "load_memory")(str(tmp_path / "m"), bert)
    assert "damaged" in told and f"{rows} of 96" in view
    handler(page, "leave")(bert)
    assert "0 of 96" in handler(page, "show_memory")(bert)


def test_the_page_shows_a_memory_before_and_without_a_model():
    assert "until a model is loaded" in memory_view(Running(Serving()), None)
    assert "0 of 35" in memory_view(Running(Serving(FakeEngine())), None).replace(f"{FakeEngine.vocabulary}", "35")


def test_longer_keys_that_persist_are_shown_with_their_bound(engine):
    memory = engine.memories["recap"]
    assert "two-token" not in fullness(engine.memories, 96)
    ask(Running(Serving(engine)), None, "one")
    memory.pairs[1, 2] = next(iter(memory.rows.values()))
    assert "1 of 50,000" in fullness(engine.memories, 96)
