"""Models are swapped behind a page that goes on answering, and only where the host allows it."""

import asyncio
import gc
import time
import weakref
from threading import Event

import pytest
from app_fakes import FakeEngine
from fake_hub import fake_hub
from test_page import handler
from tiny_processors import save_tiny

from app import models_view, texts
from app.models_view import COLUMNS, EMBEDDED_NAME, head_of, model_rows, model_table, told_of, wish_of
from app.page import build_page
from app.serving import Job, NoModelError, Serving, Status, Wish, load_engine
from app.space import Choice
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.models.loading import EMBEDDED


class Loading:
    """A model that is there when a test says so."""

    def __init__(self, result: FakeEngine | Exception) -> None:
        self.result = result
        self.may_end = Event()
        self.ended = Event()

    def __call__(self, wish, follow):
        try:
            follow(1, 10)
            assert self.may_end.wait(20)
            follow(10, 10)
            if isinstance(self.result, Exception):
                raise self.result
            return self.result
        finally:
            self.ended.set()


def settled(serving):
    """The status once nothing is on its way."""
    for _ in range(2000):
        if not (status := serving.status).job:
            return status
        time.sleep(0.01)
    raise TimeoutError


def named(name):
    engine = FakeEngine()
    engine.model_name = name
    return engine


def test_the_engine_at_hand_answers_until_the_other_is_there():
    old, new = named("old"), named("new")
    load = Loading(new)
    serving = Serving(old, load=load)
    serving.load(Wish("me/new"))
    assert serving.engine() is old
    with pytest.raises(RecapError, match="Another model is being loaded"):
        serving.load(Wish("me/third"))
    load.may_end.set()
    assert settled(serving).engine is new
    assert serving.engine() is new


def test_whoever_asks_while_the_first_model_is_loading_waits_for_it():
    load = Loading(named("new"))
    serving = Serving(load=load)
    serving.load(Wish())
    assert serving.status.state == "loading"
    load.may_end.set()
    assert serving.engine() is load.result


@pytest.mark.parametrize("problem", [RecapError("It needs 20 GB; choose a smaller one."), KeyError("secret")])
def test_a_model_that_cannot_be_loaded_leaves_the_old_one_and_one_sentence(problem):
    load = Loading(problem)
    serving = Serving(named("old"), load=load)
    serving.load(Wish("me/new"))
    load.may_end.set()
    told = told_of(settled(serving))
    assert "old stays loaded." in told
    assert ("20 GB" in told) == isinstance(problem, RecapError)
    assert "secret" not in told
    assert serving.engine().model_name == "old"
    assert "old" in head_of(serving.status)


def test_a_cancelled_model_is_not_used_and_its_download_ends():
    load = Loading(named("new"))
    serving = Serving(named("old"), load=load)
    serving.load(Wish("me/new"))
    serving.cancel()
    assert "cancelled" in told_of(serving.status)
    serving.load(Wish("me/other"))  # at once; the same fake, still held back
    serving.cancel()
    load.may_end.set()
    assert load.ended.wait(20)
    assert settled(serving).engine.model_name == "old"
    job = Job(Wish(), cancelled=True)
    with pytest.raises(NoModelError):
        job.follow(1, 2)


def test_cancelling_ends_a_real_download(tmp_path, monkeypatch):
    """The client's own threads hear of it."""
    folder = save_tiny("llama", tmp_path / "model")
    job = Job(Wish("me/llama"), cancelled=True)
    with fake_hub(monkeypatch, tmp_path / "cache", {"me/llama": folder}), pytest.raises(NoModelError):
        load_engine(job.wish, job.follow)
    assert job.whole == (folder / "model.safetensors").stat().st_size


def test_nobody_waits_for_a_first_model_that_was_cancelled():
    load = Loading(named("new"))
    serving = Serving(load=load)
    serving.load(Wish())
    serving.cancel()
    with pytest.raises(NoModelError, match="cancelled"):
        serving.engine()
    load.may_end.set()


def test_the_old_models_memory_is_free_after_the_swap():
    old = named("old")
    gone = weakref.ref(old)
    load = Loading(named("new"))
    load.may_end.set()
    serving = Serving(old, load=load)
    del old
    serving.load(Wish("me/new"))
    settled(serving)
    gc.collect()
    assert gone() is None


def test_a_downloads_progress_is_told_in_words():
    status = Status(named("old"), Job(Wish("me/new"), 3_100_000_000, 16_600_000_000), None)
    told = told_of(status)
    assert "downloading me/new: 3.1 of 16.6 GB" in told
    assert 'value="3100000000"' in told
    assert "Meanwhile old answers." in told
    assert "loading me/new" in told_of(Status(None, Job(Wish("me/new")), None))


# --- the tab


@pytest.mark.skipif(not EMBEDDED.is_dir(), reason="the embedded model is not here")
def test_the_list_has_every_known_model_and_the_embedded_one_first(monkeypatch):
    from recap_engine.models import hub
    from recap_engine.models.catalogue import CATALOGUE

    monkeypatch.setattr(hub, "on_disk", lambda name: name == CATALOGUE[0].name)
    rows = model_rows("cpu", "float32")
    assert [row[0] for row in rows] == [EMBEDDED_NAME, *(known.name for known in CATALOGUE)]
    assert all(len(row) == len(COLUMNS) and all(row) for row in rows)
    assert [row[5] for row in rows[:3]] == ["yes", "yes", "no"]
    assert rows[0][1] == Engine.load(device="cpu").target.family.name
    assert model_table(rows).count("<tr>") == len(rows) + 1
    half = {row[0]: row[3] for row in model_rows("cpu", "bfloat16")}
    assert float(half["Qwen/Qwen2.5-VL-7B-Instruct"].split()[0]) < 20 < float(rows[13][3].split()[0])


@pytest.mark.parametrize(
    "name", ["/etc", "..", "assets/model", "~/x", "./x", "a/b/c", "gpt2", "me/x\0", "me/" + "x/.."]
)
def test_folders_are_closed_where_the_host_allows_names_only(name):
    with pytest.raises(RecapError, match="as owner/model"):
        wish_of(name, "auto", "auto", Choice.HUB)
    assert wish_of(name, "auto", "auto", Choice.FOLDERS).name == name


def test_names_of_the_hub_and_the_embedded_model_are_taken():
    assert wish_of(" Qwen/Qwen2.5-VL-7B-Instruct ", "cpu", "float32", Choice.HUB).name == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert wish_of(EMBEDDED_NAME, "auto", "auto", Choice.HUB).name is None
    assert wish_of("", "auto", "auto", Choice.HUB).name is None


def test_without_leave_nothing_that_changes_the_model_is_wired():
    names = {fn.name for fn in build_page(Serving(), choice=Choice.NONE).fns.values()}
    assert not {"load", "cancel"} & names
    assert "list_models" in names
    assert {"load", "cancel"} <= {fn.name for fn in build_page(Serving()).fns.values()}


def test_loading_from_the_page_ends_with_the_new_models_name_in_its_head(monkeypatch):
    monkeypatch.setattr(models_view, "WATCH_S", 0.01)
    load = Loading(named("new"))
    load.may_end.set()
    serving = Serving(named("old"), load=load)

    async def press():
        return [update async for update in handler(build_page(serving), "load")("me/new", "auto", "auto")]

    *_, last = asyncio.run(press())
    shown = {part.elem_id: value for part, value in last.items()}
    assert "new is loaded" in shown["model-told"]
    assert shown["model-load"]["interactive"] and not shown["model-cancel"]["interactive"]
    assert any("new" in str(value) and "masthead" in str(value) for value in last.values())


def test_an_answer_of_another_model_is_not_read_by_this_one():
    engine = FakeEngine()
    page = build_page(Serving(engine))
    engine.model_name = "another"
    _, told = handler(page, "look")(engine.played, object())
    assert texts.SENSITIVITY_NEEDS_ITS_MODEL in told
