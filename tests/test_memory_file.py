"""Memories outlive the program in one file; no file that is foreign, damaged or forged becomes a memory."""

import os
import resource

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from test_memory_merge import contents, served
from tiny_models import generated, random_request, tiny_engine

from recap_engine.errors import RecapError
from recap_engine.memory import Record, TokenMemory
from recap_engine.memory_file import COLUMNS, MATRICES, columns, from_columns
from recap_engine.models.hub import revision_of
from recap_engine.settings import Settings

SETTINGS = Settings(max_new_tokens=16, budget=16)


@pytest.fixture(scope="module")
def used():
    """An engine that has answered with every lane, once with recording and once without, and has some long keys."""
    engine, used_lanes = tiny_engine("llama"), ("tr", "recap", "recap+")
    for seed, record in ((0, True), (1, False)):
        request = random_request("llama", seed)
        request.image_sha = None if seed else "ab" * 32
        for lane in used_lanes:
            engine.answer(request, lane, Settings(max_new_tokens=16, budget=16, record=record))
    rows = engine.memories["recap"].rows
    first, second, *_ = rows
    engine.memories["recap"].pairs[first, second] = rows[second]
    engine.memories["recap"].triples[-1, first, second] = Record([1, 2, 3], [0.5, 0.25, 0.125], 0.5, (1, 3, False))
    return engine


@pytest.fixture
def saved(used, tmp_path):
    used.save_memories(tmp_path / "memory.safetensors")
    return tmp_path / "memory.safetensors"


def parts(path):
    """Metadata and tensors of a file, to change."""
    with safe_open(path, framework="numpy") as file:
        return file.metadata(), {name: file.get_tensor(name).copy() for name in file.keys()}  # noqa: SIM118


def test_a_memory_comes_back_as_it_was_saved(used, saved):
    other = tiny_engine("llama")
    other.load_memories(saved)
    for name, memory in used.memories.items():
        if name == "tr":
            assert contents(other.memories[name]) == contents(memory)
        assert other.memories[name].requests == 2
    kept = other.memories["recap"]
    assert any(record is row for record in kept.pairs.values() for row in kept.rows.values()), "shared as before"
    request = random_request("llama", 3)
    for lane in ("tr", "recap"):
        own, again = used.apart(), other.apart()
        own.memories[lane], again.memories[lane] = used.memories[lane].copy(), other.memories[lane]
        one, two = own.answer(request, lane, SETTINGS), again.answer(request, lane, SETTINGS)
        assert [step.tokens for step in one.steps] == [step.tokens for step in two.steps]
        assert one.tokens == generated(other, request, 16)


@pytest.mark.parametrize("lane", ["recap", "recap+"])
def test_blended_records_and_long_keys_come_back_as_precise_as_the_model_is(used, saved, lane):
    other = tiny_engine("llama")
    other.load_memories(saved)
    memory, again = used.memories[lane], other.memories[lane]
    for order in (1, 2, 3):
        assert list(again.tables[order]) == list(memory.tables[order])
        for one, two in zip(memory.tables[order].values(), again.tables[order].values()):
            assert (one.tokens, one.written) == (two.tokens, two.written)
            assert two.chances == pytest.approx(one.chances, rel=1e-5)
    assert len(memory.triples) > 20 or lane == "recap"


def test_an_empty_memory_and_one_of_mixed_records_survive():
    mixed = served(TokenMemory(), None, [5, 6])
    mixed.rows[7] = Record([1, 2, 3, 4], [0.5, 0.25, 0.0, 0.0], 0.0, (1, -1, False))
    for memory in (TokenMemory(), mixed):
        assert contents(from_columns(columns(memory))) == contents(memory)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("format", "no memory file"),
        ("version", "another version"),
        ("model", "another model"),
        ("revision", "another revision"),
        ("tokenizer", "another tokenizer"),
    ],
)
def test_a_foreign_file_is_refused_and_the_old_memory_kept(used, saved, field, told):
    metadata, tensors = parts(saved)
    save_file(tensors, saved, {**metadata, field: "<b>x</b>" * 999})
    refused(used, saved, told)
    save_file(tensors, saved, {name: value for name, value in metadata.items() if name != field})
    refused(used, saved, told)


def refused(engine, path, told=""):
    before = {name: contents(memory) for name, memory in engine.memories.items()}
    with pytest.raises(RecapError, match=told) as caught:
        engine.load_memories(path)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 250 and str(path.parent) not in sentence
    assert {name: contents(memory) for name, memory in engine.memories.items()} == before


@pytest.mark.parametrize("cut", [0, 7, 8, 100, 2000, -1])
def test_a_truncated_file_is_refused(used, saved, cut):
    saved.write_bytes(saved.read_bytes()[:cut])
    refused(used, saved, "damaged")


def test_what_is_no_file_of_ours_is_refused(used, tmp_path, monkeypatch):
    refused(used, tmp_path / "gone.safetensors", "There is no memory file gone.safetensors")
    refused(used, tmp_path, "")
    (tmp_path / "x").write_bytes(b"\x89PNG" + os.urandom(5000))
    refused(used, tmp_path / "x", "not a memory file")
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "x")
    refused(used, tmp_path / "x", "no memory file")
    monkeypatch.setattr("recap_engine.memory_file.MOST_BYTES", 10)
    refused(used, tmp_path / "x", "larger than")


def change(**columns):
    """Changes the file's columns of RECAP's memory; a function of the old column, or the new one."""
    return lambda tensors: {
        **tensors,
        **{f"recap.{name}": new(tensors[f"recap.{name}"]) for name, new in columns.items()},
    }


def put(at, value):
    def changed(array):
        array[at] = value
        return array

    return changed


def last(array):
    return array[:-1]


def matrix(**columns):
    return lambda tensors: {**tensors, **{f"tr.{name}": new(tensors[f"tr.{name}"]) for name, new in columns.items()}}


FORGED = {
    "a token out of the vocabulary": change(tokens=put((0, 0), 96)),
    "a negative token": change(tokens=put((0, 0), -2)),
    "a huge token": change(tokens=put((0, 0), 2**31 - 1)),
    "the same token twice": change(tokens=lambda a: put((0, 1), a[0, 0])(a)),
    "a hole in a record": change(tokens=put((0, 0), -1)),
    "an empty record": change(tokens=put(0, -1), probabilities=put(0, -1)),
    "NaN": change(probabilities=put((0, 0), np.nan)),
    "infinity": change(probabilities=put((0, 0), np.inf)),
    "a negative probability": change(probabilities=put((0, 4), -0.5)),
    "probabilities of all zeros": change(probabilities=put(0, 0.0)),
    "probabilities that sum to 8": change(probabilities=put(0, 1.0)),
    "rising probabilities": change(probabilities=lambda a: put(0, a[0, ::-1].copy())(a)),
    "no probabilities": change(probabilities=put(0, -1)),
    "NaN as entropy": change(entropy=put(0, np.nan)),
    "an entropy of 2": change(entropy=put(0, 2.0)),
    "a request that was never served": change(request=put(0, 9)),
    "request 0": change(request=put(0, 0)),
    "a step before the prompt": change(step=put(0, -2)),
    "a key out of the vocabulary": change(keys1=put((0, 0), 96)),
    "no token as a one-token key": change(keys1=put((0, 0), -1)),
    "a key twice": change(keys1=lambda a: put(0, a[1])(a)),
    "a key without a record": change(of1=put(0, 9999)),
    "a negative record": change(of2=put(0, -1)),
    "pairs of three": change(keys2=lambda a: np.zeros((len(a), 3), np.int32)),
    "fewer keys than records of them": change(keys3=last),
    "fewer entropies": change(entropy=last),
    "more tokens than probabilities": change(probabilities=lambda a: np.ascontiguousarray(a[:, :-1])),
    "a thousand tokens a record": change(
        tokens=lambda a: np.full((len(a), 1000), 1, np.int32),
        probabilities=lambda a: np.full((len(a), 1000), 0.0, np.float32),
    ),
    "no requests": change(state=put(0, 0.0)),
    "a number of requests beyond any": change(state=put(0, 1e300)),
    "half a request": change(state=put(0, 2.5)),
    "NaN requests": change(state=put(0, np.nan)),
    "infinite promises": change(state=put(1, np.inf)),
    "negative promises": change(state=put(2, -1.0)),
    "a state of three": change(state=last),
    "a picture twice": change(pictured=put(0, 2)),
    "half a hash": change(pictures=lambda a: np.ascontiguousarray(a[:, :16])),
    "fewer pictures": change(with_picture=last),
    "other types": change(tokens=lambda a: a.astype(np.int64)),
    "other dimensions": change(entropy=lambda a: a[:, None]),
    "a column too many": lambda tensors: {**tensors, "recap.more": np.zeros(3, np.float32)},
    "a column too few": lambda tensors: {name: a for name, a in tensors.items() if name != "recap.step"},
    "a memory too many": lambda tensors: (
        tensors | {f"other.{name.partition('.')[2]}": a for name, a in tensors.items() if name.startswith("tr.")}
    ),
    "a matrix of seven tokens": matrix(
        tokens=lambda a: np.ascontiguousarray(a[:, :7]), probabilities=lambda a: np.ascontiguousarray(a[:, :7])
    ),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_file_is_refused_and_the_old_memory_kept(used, saved, forgery):
    metadata, tensors = parts(saved)
    save_file(FORGED[forgery](tensors), saved, metadata)
    refused(used, saved)


def test_the_forger_changes_nothing_by_copying(used, saved):
    """What the tests above change is the reason for the refusal, not the way of writing."""
    metadata, tensors = parts(saved)
    assert {name.partition(".")[2] for name in tensors} == set(COLUMNS)
    assert set(MATRICES) < set(used.memories)
    save_file(tensors, saved, metadata)
    used.load_memories(saved)


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(used, saved):
    before = saved.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
        with pytest.raises(RecapError, match="could not be saved") as caught:
            used.save_memories(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(saved.parent) not in str(caught.value)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]
    with pytest.raises(RecapError, match="could not be saved"):
        used.save_memories(saved.parent / "no" / "folder")


def test_a_memory_is_saved_while_a_request_writes_to_it(used, tmp_path):
    run = used.apart()
    progress = run.run(random_request("llama", 5), "recap", SETTINGS)
    for number, _ in enumerate(progress):
        run.save_memories(tmp_path / f"{number}")
        tiny_engine("llama").load_memories(tmp_path / f"{number}")


def test_a_folders_revision_changes_with_its_weights(tmp_path):
    save_file({"w": np.zeros(9, np.float32)}, tmp_path / "model.safetensors")
    first = revision_of(tmp_path)
    save_file({"w": np.ones(9, np.float32)}, tmp_path / "model.safetensors")
    assert first != revision_of(tmp_path)
    assert revision_of(tmp_path / "snapshots" / "abc") == "abc"
