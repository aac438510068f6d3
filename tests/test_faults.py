"""What breaks is told in one sentence and leaves nothing behind: the next request is answered as if nothing was."""

import errno
import gc
import json
import os
import signal
import time
import weakref
from types import SimpleNamespace

import pytest
import torch
from bad_pictures import SMALL
from server import Visitor, served
from test_page import handler, run
from tiny_models import generated, tiny_model
from tiny_processors import PROCESSORS

from app import texts, wiring
from app.lanes import Ask, StopFlag
from app.page import build_page
from app.serving import Serving
from recap_engine import atomic
from recap_engine.engine import LANES, MEMORY_FULL, Engine
from recap_engine.errors import RecapError, is_memory_full
from recap_engine.kvcache import KVBuffer
from recap_engine.models.families import family_named
from recap_engine.settings import Settings
from recap_engine.target import Target
from recap_engine.trace import RequestTrace

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
TOKENS = 12
FAULTS = {
    "a fault in the pass": (ZeroDivisionError("/secret/path"), texts.UNEXPECTED),
    "the GPU's memory is full": (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), MEMORY_FULL),
    "the machine's memory is full": (RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 GB"), MEMORY_FULL),
    "Python's memory is full": (MemoryError(), MEMORY_FULL),
    "the device is gone": (RuntimeError("CUDA error: device-side assert triggered at /x.cu:1"), texts.UNEXPECTED),
}


@pytest.fixture(scope="module")
def tried() -> tuple[object, Engine, str]:
    """A page, its engine, and a picture's path."""
    model = tiny_model("qwen2_5_vl")
    engine = Engine(Target(model, family_named("qwen2_5_vl")), PROCESSORS["qwen2_5_vl"]("qwen2_5_vl"), "tiny")
    return build_page(Serving(engine)), engine


@pytest.fixture(scope="module")
def picture(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("picture") / "p.png"
    SMALL.save(path)
    return str(path)


def fail_at(monkeypatch, engine, method: str, call: int, error: Exception) -> list[weakref.ref]:
    """From its `call`th call on, a method of the target fails. Returns references to all buffers opened meanwhile."""
    calls, whole, opened = [], getattr(engine.target, method), []

    def failing(*given, **more):
        calls.append(None)
        if len(calls) >= call:
            raise error
        return whole(*given, **more)

    def noted(self, *given, **more):
        opened.append(weakref.ref(self))
        started(self, *given, **more)

    started = KVBuffer.__init__
    monkeypatch.setattr(KVBuffer, "__init__", noted)
    monkeypatch.setattr(engine.target, method, failing)
    return opened


def press_run(page, picture, lanes=LANES) -> dict:
    """What one press of Run shows at last, by the parts' ids."""
    updates = handler(page, "answer_all")(picture, "What is it?", list(lanes), TOKENS, 8, 0, StopFlag())
    return {part.elem_id: value for update in updates for part, value in update.items()}


AT = [("prefill", 1), ("open", 1), ("verify", 1), ("verify", 3), ("commit", 2)]
CASES = [(fault, *at, lane) for fault in list(FAULTS)[:2] for at in AT for lane in LANES]
CASES += [(fault, "verify", 2, "recap") for fault in list(FAULTS)[2:]]


@pytest.mark.parametrize(("fault", "method", "call", "lane"), CASES)
def test_after_a_fault_in_a_lane_the_next_request_is_answered(tried, picture, monkeypatch, fault, method, call, lane):
    page, engine = tried
    error, told = FAULTS[fault]
    with monkeypatch.context() as patch:
        patch.setattr(wiring.log, "disabled", True)  # pytest keeps what is logged, and with it the error's frames
        opened = fail_at(patch, engine, method, call, error)
        shown = press_run(page, picture, [lane])
    assert told.replace("'", "&#x27;") in shown["message"]
    assert "/secret" not in str(shown) and "Traceback" not in str(shown)
    assert shown["run"]["interactive"] and not shown["stop"]["interactive"]
    error.__traceback__ = None
    if any(buffer() for buffer in opened):
        gc.collect()
    assert not any(buffer() for buffer in opened), "its keys and values are freed"

    request = engine.prepare("What is it?", picture)
    assert engine.answer(request, lane, Settings(TOKENS, 8)).tokens == generated(engine, request, TOKENS)


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_in_the_look_without_the_picture_the_next_look_works(tried, picture, monkeypatch, fault):
    page, engine = tried
    error, told = FAULTS[fault]
    asked = Ask("What is it?", picture, ["ar"], Settings(TOKENS))
    request = engine.prepare(asked.question, picture)
    trace = engine.trace(request, [engine.answer(request, "ar", asked.settings)], asked.settings)
    look = handler(page, "look")
    with monkeypatch.context() as patch:
        fail_at(patch, engine, "read_answer", 2, error)
        assert told.replace("'", "&#x27;") in look(trace, asked)[1]
    found, message = look(trace, asked)
    assert message == "" and len(found.sensitivity.kl) == trace.lanes["ar"].n_tokens


def test_a_fault_half_way_leaves_memories_that_can_be_saved_and_read(tried, picture, monkeypatch, tmp_path):
    page, engine = tried
    with monkeypatch.context() as patch:
        fail_at(patch, engine, "verify", 2, FAULTS["the GPU's memory is full"][0])
        press_run(page, picture)
    engine.save_memories(tmp_path / "memories.safetensors")
    engine.load_memories(tmp_path / "memories.safetensors")


def test_other_errors_are_not_taken_for_a_full_memory():
    assert not is_memory_full(RuntimeError("shape mismatch"))
    assert is_memory_full(torch.OutOfMemoryError("HIP out of memory"))


class FullDisk:
    """A disk that takes so many bytes and then is full."""

    def __init__(self, monkeypatch, room: int) -> None:
        def small(*given, **more):
            file = whole(*given, **more)
            write = file.write

            def bounded(data):
                write(data[:room])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)

            file.write = bounded
            return file

        whole = atomic.tempfile.NamedTemporaryFile
        monkeypatch.setattr(atomic, "tempfile", SimpleNamespace(NamedTemporaryFile=small))


@pytest.mark.parametrize("room", [0, 100])
def test_a_full_disk_costs_the_trace_file_but_not_the_run(tried, picture, monkeypatch, room):
    page, engine = tried
    with monkeypatch.context() as patch:
        FullDisk(patch, room)
        with pytest.warns(UserWarning, match="The trace could not be saved .No space left on device.;"):
            shown = run(page, picture=picture, budget=8)
    assert shown["inspector"]["visible"]
    assert shown["download"] == {"visible": False, "__type__": "update"}
    assert run(page, picture=picture, budget=8)["download"]["visible"]


def test_a_full_disk_leaves_the_old_files_whole_and_no_others(tried, picture, monkeypatch, tmp_path):
    page, engine = tried
    trace = engine.trace(request := engine.prepare("Is it?", picture), [engine.answer(request, "ar")], Settings())
    kept = {"trace.json.gz": trace.save, "memories.safetensors": engine.save_memories}
    for name, save in kept.items():
        save(tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in kept}
    with monkeypatch.context() as patch:
        FullDisk(patch, 100)
        for name, save in kept.items():
            with pytest.raises(RecapError, match="No space left on device.*still there") as caught:
                save(tmp_path / name)
            assert str(tmp_path) not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert RequestTrace.load(tmp_path / "trace.json.gz").question == "Is it?"


def test_a_folder_that_is_not_there_or_not_writable_is_told(tried, tmp_path):
    with pytest.raises(RecapError, match="could not be saved"):
        tried[1].save_memories(tmp_path / "nowhere" / "memories.safetensors")


def test_sigterm_in_the_middle_of_a_run_ends_the_program_at_once_and_leaves_nothing(tmp_path):
    """And the program that is started after it answers as if nothing had been."""
    with served(tmp_path) as server:
        visitor = Visitor(server.url, "first")
        SMALL.save(tmp_path / "p.png")
        visitor.join(visitor.upload((tmp_path / "p.png").read_bytes()), "Describe it in detail.", ["ar"], limit=512)
        events = visitor.events()
        while next(events)["msg"] != "process_generating":
            pass
        assert list(tmp_path.glob("recap-inspector-*/*"))
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.monotonic() - start < 5
        assert not list(tmp_path.glob("recap-inspector-*"))
        assert "Traceback" not in server.log.read_text()

    with served(tmp_path) as server:
        again = Visitor(server.url, "second")
        uploaded = again.upload((tmp_path / "p.png").read_bytes())
        (text, lanes, trace), _ = again.answer(uploaded, "What is it?", ["ar", "recap"])
        assert text and json.dumps(lanes) and lanes[1]["identical"] and trace
