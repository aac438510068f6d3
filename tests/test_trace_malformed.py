"""A foreign, huge, damaged or tampered trace is refused in one clear sentence, and nothing in it is ever run."""

import copy
import gzip
import json
import random
import time

import pytest
from app_fakes import make_lane, make_trace

from recap_engine.trace import MAX_BYTES, RequestTrace, TraceError

HTML = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def sound():
    """A small sound trace, as JSON data."""
    trace = make_trace(nodes=12, steps=4)
    trace.lanes["tr"] = make_lane("tr", [6, 6], seed=1)
    return json.loads(trace.to_json())


def lane(data):
    return data["lanes"]["recap"]


def step(data):
    """The first step that accepted something; it has 12 nodes."""
    return next(step for step in lane(data)["steps"] if step["accepted"])


def put(part, column, value, at=0):
    """A spoiler: in a part of the trace, the entry `at` of a column becomes `value`."""
    return lambda data: part(data)[column].__setitem__(at, value)


def update(part, **values):
    return lambda data: part(data).update(values)


def whole(data):
    return data


def records(data):
    return lane(data)["records"]


def first_row(data):
    """Number of the first row with children; the root's."""
    return next(row for row, found in enumerate(step(data)["recalled"]) if found)


def hang_all_under_the_root(data):
    step(data)["parents"][:] = [-1] * len(step(data)["parents"])


def a_million_nodes(data):
    step(data)["tokens"] = list(range(10**6))


def twins(data):
    """Two nodes under one parent with one token."""
    at = step(data)
    at["parents"][-1], at["depths"][-1], at["tokens"][-1] = at["parents"][0], at["depths"][0], at["tokens"][0]


def no_record_of_the_source(data):
    """The record that a node's largest share came from does not hold its token."""
    row, order = step(data)["parents"][0] + 1, step(data)["orders"][0]
    record = step(data)["recalled"][row][order - 1]
    tokens = records(data)["tokens"][record]
    tokens[tokens.index(step(data)["tokens"][0])] = 10**6


def childless_row(data):
    inner = {parent + 1 for parent in step(data)["parents"]}
    return next(row for row in range(13) if row not in inner)


MALFORMED = {
    # of the whole
    "another schema": (update(whole, schema=1), "schema 1"),
    "a schema that is text": (update(whole, schema="2"), "schema '2'"),
    "a schema that is true": (update(whole, schema=True), "schema True"),
    "no schema": (lambda d: d.pop("schema"), "no schema"),
    "a missing field": (lambda d: d.pop("question"), "lacks question"),
    "text for a number": (update(whole, prompt_tokens="many"), "prompt_tokens"),
    "true for a number": (update(whole, prompt_tokens=True), "prompt_tokens"),
    "a fraction for a count": (update(whole, prompt_tokens=1.5), "prompt_tokens"),
    "a number for text": (update(whole, question=7), "question"),
    "a negative count": (update(whole, prompt_tokens=-1), "negative"),
    "a huge number": (update(whole, prompt_tokens=10**400), "out of range"),
    "a huge number for a time": (update(lane, decode_s=10**400), "not finite"),
    "a negative picture": (update(whole, image_size=[-1, 5]), "negative"),
    "a picture of three sides": (update(whole, image_size=[1, 2, 3]), "image_size"),
    "a long end of the prompt": (update(whole, prompt_end=[1, 2, 3]), "end of the prompt"),
    "half a history": (update(whole, history=[["only a question"]]), "history"),
    "a date that is none": (update(whole, created="yesterday"), "when it was made"),
    "settings with parts": (update(whole, settings={"a": {"b": 1}}), "settings"),
    "a machine in a list": (update(whole, machine=["gpu"]), "machine"),
    "a token that is no number": (lambda d: d["token_text"].update(x="y"), "not a number"),
    "a negative token id": (lambda d: d["token_text"].update({"-3": "y"}), "not a number"),
    "half a surrogate pair": (update(whole, question="\ud800"), "valid Unicode"),
    "an endless text": (update(whole, question="a" * (2**20 + 1)), "too long"),
    "a list for lanes": (update(whole, lanes=[]), "wrong kind"),
    "a number for a lane": (update(whole, lanes={"ar": 3}), "wrong kind"),
    "an unknown lane": (lambda d: d["lanes"].update(warp={**lane(d), "name": "warp"}), "does not know, warp"),
    "sensitivity of another answer": (lambda d: d["sensitivity"]["kl"].append(0.1), "another length"),
    "negative sensitivity": (lambda d: put(lambda d: d["sensitivity"], "kl", -0.5)(d), "sensitivity is negative"),
    "sensitivity without an answer": (update(whole, lanes={}), "no answer"),
    # of a lane
    "a lane of another name": (update(lane, name="tr"), "another name"),
    "a lane named in markup": (lambda d: d["lanes"].update({HTML: {**lane(d), "name": HTML}}), "does not know"),
    "a lane named in capitals": (lambda d: d["lanes"].update(RECAP={**lane(d), "name": "RECAP"}), "does not know"),
    "an unknown end": (update(lane, stopped="tired"), "unknown end"),
    "a negative time": (update(lane, decode_s=-1.0), "negative time"),
    "tokens that don't add up": (lambda d: lane(d)["tokens"].append(1), "add up"),
    "a negative token": (put(lane, "tokens", -1, 2), "negative token"),
    "no steps to the answer": (update(lane, steps=[]), "add up"),
    "24,000 steps": (lambda d: d["lanes"]["ar"].update(steps=d["lanes"]["ar"]["steps"] * 2000), "more than 16384"),
    "a step for all steps": (lambda d: update(lane, steps=step(d))(d), "wrong kind"),
    "pictures in a list": (update(lane, pictures=["0"]), "wrong kind"),
    "a picture missing": (lambda d: lane(d)["pictures"].pop("3"), "which pictures"),
    "a request before the first": (update(lane, request=-1), "which pictures"),
    # of records
    "a short column of records": (lambda d: records(d)["entropy"].pop(), "different lengths"),
    "an empty record": (put(records, "tokens", []), "no tokens"),
    "65 tokens in a record": (put(records, "tokens", list(range(65))), "more than 64"),
    "a token without probability": (lambda d: records(d)["probabilities"][0].pop(), "a probability for each"),
    "a negative token in a record": (lambda d: put(records, "tokens", [-1] * 8)(d), "negative token"),
    "a probability of 2": (lambda d: put(records, "probabilities", [2.0] * 8)(d), "no probabilities"),
    "an impossible best token": (lambda d: put(records, "probabilities", [0.0] * 8)(d), "impossible"),
    "entropy above 1": (put(records, "entropy", 1.5), "no probabilities"),
    "an unknown request": (put(records, "written", [99, 0, True]), "which pictures"),
    "written in step -2": (put(records, "written", [3, -2, True]), "out of range"),
    "written in two numbers": (put(records, "written", [3, 0]), "wrong kind"),
    # of a step
    "a loop": (put(step, "parents", 1), "earlier node"),
    "its own parent": (put(step, "parents", 5, 5), "earlier node"),
    "a parent of -2": (put(step, "parents", -2), "out of range"),
    "a wrong depth": (put(step, "depths", 7), "earlier node"),
    "all under the root": (hang_all_under_the_root, "earlier node"),
    "a short column": (lambda d: step(d)["fused"].pop(), "different lengths"),
    "a short column of rows": (lambda d: step(d)["rows"].pop(), "different lengths"),
    "a million nodes": (a_million_nodes, "more than 4096 nodes"),
    "the same candidate twice": (twins, "same candidate twice|wrong"),
    "an unknown decision": (put(step, "decisions", "maybe"), "wrong decision"),
    "a decision that isn't so": (lambda d: step(d)["decisions"].reverse(), "wrong decision"),
    "an unknown order": (put(step, "orders", 4), "unknown source"),
    "an order its lane lacks": (put(lambda d: d["lanes"]["tr"]["steps"][0], "orders", 3), "unknown source"),
    "no order agrees": (put(step, "agree", 0), "unknown source"),
    "a negative rank": (put(step, "target_ranks", -1), "unknown source or rank"),
    "a fused probability of 1.5": (put(step, "fused", 1.5), "from 0 to 1"),
    "a negative path": (put(step, "path", -0.1), "from 0 to 1"),
    "shares that don't add up": (put(step, "shares", [0.0, 0.0, 0.0]), "do not add up"),
    "two shares": (put(step, "shares", [0.5, 0.5]), "wrong kind"),
    "an accepted node that isn't there": (update(step, accepted=[999]), "not a path"),
    "an accepted node out of order": (lambda d: step(d)["accepted"].append(step(d)["accepted"][0]), "not a path"),
    "another bonus token": (update(step, bonus=10**6), "does not add what it accepted"),
    "nothing added": (update(step, emitted=[]), "does not add what it accepted"),
    "more margins than tokens": (lambda d: step(d)["margins"].extend([1.0] * 9), "margins"),
    "a negative margin": (put(step, "margins", -1.0), "margins"),
    "a step out of place": (update(step, root_position=999), "does not start where"),
    "another root": (update(step, root_token=10**6), "does not start where"),
    "a step that ends before it begins": (update(step, ended_s=-5.0), "ends before"),
    "a negative phase": (update(step, verify_s=-0.1), "negative time"),
    "an unknown memory": (update(step, memory={"order9": 1}), "unknown memory"),
    "a record that isn't there": (put(step, "rows", 10**6), "record that isn't there"),
    "a negative record": (put(step, "rows", -1), "record that isn't there"),
    "recalled from nowhere": (lambda d: put(step, "recalled", [10**6] * 3, first_row(d))(d), "record that isn't there"),
    "recalled by a leaf": (lambda d: put(step, "recalled", [0, 0, 0], childless_row(d))(d), "what cannot be"),
    "weighed by a leaf": (lambda d: put(step, "weights", [1, 0, 0], childless_row(d))(d), "what cannot be"),
    "weights of nothing": (lambda d: put(step, "weights", [0.0] * 3, first_row(d))(d), "weights that do not add up"),
    "a record that says another thing": (no_record_of_the_source, "not in the record"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_traces_are_refused(sound, name):
    spoil, message = MALFORMED[name]
    data = copy.deepcopy(sound)
    spoil(data)
    refuses(json.dumps(data), message)


def refuses(text, message=""):
    with pytest.raises(TraceError, match=message or None) as caught:
        RequestTrace.from_json(text)
    assert "\n" not in str(caught.value)
    assert 20 < len(str(caught.value)) < 200
    assert str(caught.value).endswith(".")


NOT_A_TRACE = {
    "nothing": "",
    "prose": "no json",
    "a list": "[]",
    "a number": "3",
    "null": "null",
    "text": '"schema"',
    "only a schema": '{"schema": 2}',
    "NaN": '{"schema": NaN}',
    "Infinity": '{"schema": 2, "x": -Infinity}',
    "deep lists": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "deep in a field": '{"schema": 2, "model": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "a number of 5,000 digits": '{"schema": ' + "1" * 5000 + "}",
    "a page": f"<!DOCTYPE html><html>{HTML}</html>",
    "code": "__import__('os').system('true')",
    "more lists than memory has": "[" + "[]," * 5_000_000 + "[]]",
}


@pytest.mark.parametrize("name", NOT_A_TRACE)
def test_what_is_not_a_trace_is_refused(name):
    refuses(NOT_A_TRACE[name])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("column", ["fused", "target_probs", "margins"])
def test_numbers_that_are_none_are_refused(sound, number, column):
    data = copy.deepcopy(sound)
    step(data)[column][0] = "HERE"
    refuses(json.dumps(data).replace('"HERE"', number), "not a number|not finite")


def test_damaged_and_foreign_files_are_refused(sound, tmp_path):
    packed = gzip.compress(json.dumps(sound).encode())
    files = {
        "cut.json.gz": packed[: len(packed) // 2],
        "cut-in-its-head.json.gz": packed[:5],
        "flipped.json.gz": packed[:200] + bytes([packed[200] ^ 255]) + packed[201:],
        "picture.json": b"\x89PNG\r\n\x1a\n" + bytes(64),
        "latin-1.json": '{"schema": 2, "question": "é"}'.encode("latin-1"),
        "utf-16.json": json.dumps(sound).encode("utf-16"),
        "empty.json": b"",
        "empty.json.gz": gzip.compress(b""),
        "pickle.json": b"\x80\x04\x95.",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for path in (*(tmp_path / name for name in files), tmp_path / "missing.json", tmp_path):
        with pytest.raises(TraceError) as caught:
            RequestTrace.load(path)
        assert "\n" not in str(caught.value)


def test_a_bomb_is_not_unpacked(tmp_path):
    """A quarter of a GiB of blanks in a megabyte: reading stops at the limit."""
    with gzip.open(tmp_path / "bomb.json.gz", "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b" " * 2**22)
    start = time.thread_time()
    with pytest.raises(TraceError, match="larger than"):
        RequestTrace.load(tmp_path / "bomb.json.gz")
    assert time.thread_time() - start < 2.0


def test_a_plain_file_over_the_limit_is_refused(tmp_path):
    (tmp_path / "large.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(TraceError, match="larger than"):
        RequestTrace.load(tmp_path / "large.json")


def test_a_file_is_known_by_its_content_not_its_name(tmp_path, sound):
    (tmp_path / "renamed.json").write_bytes(gzip.compress(json.dumps(sound).encode()))
    (tmp_path / "unpacked.json.gz").write_text(json.dumps(sound))
    for path in tmp_path.iterdir():
        assert RequestTrace.load(path).model == "made-up"


def test_markup_in_texts_is_kept_as_text(sound):
    data = copy.deepcopy(sound)
    data["token_text"]["3"] = data["question"] = HTML
    trace = RequestTrace.from_json(json.dumps(data))
    assert trace.token_text[3] == trace.question == HTML
    assert json.loads(trace.to_json())["question"] == HTML


def test_a_number_that_is_none_is_never_written():
    trace = make_trace(nodes=3, steps=2)
    trace.lanes["recap"].steps[0].margins[0] = float("nan")
    with pytest.raises(TraceError, match="not finite"):
        trace.to_json()


JUNK = (None, True, -1, 0, 3, 10**9, 10**30, 0.5, -0.5, 1e300, "", "ar", HTML, "\ud83d", [], {}, [[]], [None], {"0": 1})


def test_tampering_with_any_value_is_refused_or_does_no_harm(sound):
    """Random values put in random places: either one sentence, or a trace of which everything can be asked."""
    rng = random.Random(0)
    for _ in range(300):
        data = copy.deepcopy(sound)
        for _ in range(rng.choice((1, 1, 2))):
            tamper(data, rng)
        try:
            trace = RequestTrace.from_json(json.dumps(data))
        except TraceError as error:
            assert "\n" not in str(error)
            continue
        ask_everything(trace)


def tamper(data, rng):
    """Walk down to a random place and put junk there, or drop what is there."""
    part = data
    while True:
        keys = list(part) if isinstance(part, dict) else range(len(part))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(part[key], (dict, list)) and part[key] and rng.random() < 0.9:
            part = part[key]
        elif rng.random() < 0.15:
            del part[key]
            return
        else:
            part[key] = rng.choice(JUNK)
            return


def ask_everything(trace):
    assert trace.to_json() == RequestTrace.from_json(trace.to_json()).to_json()
    if trace.lanes:
        trace.comparison()
    for lane in trace.lanes.values():
        lane.steps_frame()
        lane.nodes_frame(vocab_text=trace.token_text)
        lane.phase_seconds()
        for record in range(len(lane.records)):
            lane.is_other_picture(record)
        for step in lane.steps:
            for row in range(len(step.rows)):
                trace.key(lane, step, row)


def test_a_long_run_opens_in_two_seconds(tmp_path):
    """250 steps of 80 nodes in two lanes: what 1,000 tokens take at the four tokens a step of the embedded model.

    By this thread's own time, which other programs don't take.
    """
    trace = make_trace(nodes=80, steps=250)
    trace.save(path := tmp_path / "long.json.gz")
    times = []
    for _ in range(2):
        start = time.thread_time()
        read = RequestTrace.load(path)
        times.append(time.thread_time() - start)
    assert min(times) < 2.0
    assert read.lanes["recap"].tokens == trace.lanes["recap"].tokens
