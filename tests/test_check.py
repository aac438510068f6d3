"""`check`, with made-up results: promises met, missed or not measured, and the exit status; what `costs` measures."""

import itertools
import json
from types import SimpleNamespace

import pytest
import torch
from tiny_models import random_request, tiny_engine
from torch import nn

from recap_engine.bench import check, costs, gpu
from recap_engine.bench.__main__ import main
from recap_engine.bench.results import Folder, Measurement, Setting
from recap_engine.engine import ALL_LANES
from recap_engine.errors import RecapError
from recap_engine.models.packing import X86, PackedLinear, pack
from recap_engine.scenes import FAMILIES
from recap_engine.settings import Settings

GOOD = {"generate": 1.02, "prompt-lookup": 0.7, "ar": 1.0, "tr-best": 0.6, "recap": 0.6, "recap+": 0.45, "oracle": 0.2}


SPEC_BENCH = tuple(
    "writing roleplay reasoning math coding extraction stem humanities translation summarization qa rag".split()
) + ("math_reasoning",)


def run(times=GOOD, steps=None, memory="hot", data=(), differs=None, dtype="float32", suites=FAMILIES):
    """A run in which AR takes a second per request and the others `times` of it; the oracle needs two passes."""
    steps = {"generate": 20, "ar": 20, "oracle": 2} | (steps or {})
    made = [
        Measurement(suite, "1", 1, lane, 21, steps.get(lane, 8), 0.0, seconds, *((differs or {}).get(lane, ())))
        for suite in suites
        for lane, seconds in times.items()
    ]
    model = "SmolLM2" if data else check.EMBEDDED_NAME
    return Setting({"memory": memory, "data": list(data), "model": model}, {"dtype": dtype}), made


def verdicts(*runs, made=()):
    return {line.what: line.verdict for line in check.lines(runs, made)}


def figures(recording=1.0, outside=4.0, growth=1.1, memory=20.0, model="embedded model"):
    values = {"recording": recording, "outside": outside, "growth": growth, "memory": memory}
    return {"model": model, "figures": {name: {"value": value} for name, value in values.items()}}


def test_all_that_is_promised_can_be_met():
    asked = [run(data=["q.jsonl"], suites=SPEC_BENCH, memory=memory) for memory in ("hot", "cold")]
    costs = [figures(), figures(model="SmolLM2", outside=1.5)]
    found = verdicts(run(), run(memory="cold"), *asked, made=costs)
    assert set(found.values()) == {"met", "reported"}
    assert found["recap+ / oracle, seven suites"] == "reported"


def test_what_nothing_decides_is_not_measured():
    found = verdicts(run(suites=("counting",)))
    assert found.pop("answers identical to the first lane's") == found.pop("runs with fewer passes than the oracle")
    assert set(found.values()) == {"not measured"}


@pytest.mark.parametrize(
    ("slower", "what"),
    [
        ({"recap+": 0.51}, "recap+ / ar, seven suites"),
        ({"tr-best": 0.5}, "recap+ / tr-best, seven suites"),
        ({"prompt-lookup": 0.57}, "recap+ / prompt-lookup, seven suites"),
        ({"generate": 0.99}, "time of ar / generate, whole request"),
    ],
)
def test_a_figure_that_falls_short_is_missed_and_no_other(slower, what):
    found = verdicts(run(GOOD | slower))
    assert [name for name, verdict in found.items() if verdict == "missed"] == [what]


def spec_bench(**times):
    """Eighty questions of Spec-Bench to a text model, which takes a second per answer plainly: five lanes."""
    times = {"prompt-lookup": 0.7, "ar": 1.0, "tr-best": 0.62, "recap": 0.6, "recap+": 0.5} | times
    return run(times, data=["question.jsonl"], suites=(SPEC_BENCH * 7)[:80])


def test_a_text_models_run_on_a_file_decides_its_own_lines_and_no_others():
    lines = {line.what: line for line in check.lines([spec_bench()], [])}
    mine = {what: line for what, line in lines.items() if "SmolLM2 on a file" in what and line.verdict == "met"}
    assert {(what.split(",")[0], line.wanted, line.measured) for what, line in mine.items()} == {
        ("recap+ / ar", ">= 1.66", "2.00 [2.00, 2.00]"),
        ("recap+ / tr-best", ">= 1.1", "1.24 [1.24, 1.24]"),
    } | {("recap+ / ar", ">= 0.98", "2.00 [2.00, 2.00] (writing)")}
    others = [line for what, line in lines.items() if "seven suites" in what]
    assert len(others) == 6 and {line.verdict for line in others} == {"not measured"}
    missed = [
        line.what
        for line in check.lines([spec_bench(**{"recap+": 0.61, "recap": 0.61})], [])
        if line.verdict == "missed"
    ]
    assert missed == ["recap+ / ar, SmolLM2 on a file", "recap+ / tr-best, SmolLM2 on a file"]


def test_another_models_drawn_suites_say_nothing_of_the_embedded_one():
    setting, made = run()
    setting.options["model"] = "Qwen"
    assert verdicts((setting, made))["recap / ar, seven suites"] == "not measured"


def test_the_better_kind_of_recap_counts():
    found = verdicts(run(GOOD | {"recap+": 0.6, "recap": 0.45}))
    assert found["recap / ar, seven suites"] == "met"


def test_one_slow_suite_is_enough_to_miss_and_cold_memories_are_judged_apart():
    setting, made = run(memory="cold")
    slow = [m for m in run({"ar": 1.0, "recap+": 1.05}, suites=("table",))[1] if m.lane == "recap+"]
    found = verdicts(run(), (setting, [m for m in made if (m.suite, m.lane) != ("table", "recap+")] + slow))
    assert found["recap+ / ar, its slowest suite, hot memories, seven suites"] == "met"
    assert found["recap+ / ar, its slowest suite, cold memories, seven suites"] == "missed"


def test_a_lane_with_fewer_passes_than_the_oracle_is_told():
    line = next(x for x in check.lines([run(steps={"recap": 1})], []) if "passes" in x.what)
    assert line.verdict == "missed" and "(recap)" in line.measured


def test_a_difference_is_missed_in_float32_and_told_with_its_margin_in_half_precision():
    for dtype, verdict in (("float32", "missed"), ("bfloat16", "reported")):
        found = check.lines([run(differs={"recap": (3, 0.02)}, dtype=dtype)], [])
        line = next(x for x in found if "identical" in x.what)
        assert line.verdict == verdict and "margin 2.0e-02" in line.measured


def test_costs_are_judged_and_a_larger_model_by_a_stricter_share():
    for cost in ({"recording": 3.1}, {"outside": 5.1}, {"growth": 1.31}, {"memory": 151.0}):
        assert list(verdicts(made=[figures(**cost)]).values()).count("missed") == 1
    found = verdicts(made=[figures(), figures(model="SmolLM2")])
    assert found["share of a step outside the target's pass, SmolLM2"] == "missed"
    assert found["share of a step outside the target's pass, embedded model"] == "met"
    assert verdicts(made=[figures()])["resident memory over AR's, a text model"] == "not measured"


def test_the_exit_status_says_whether_anything_is_missed(tmp_path, capsys):
    for name, (setting, made) in {"good": run(), "bad": run(GOOD | {"recap+": 0.9, "recap": 0.9})}.items():
        (tmp_path / name).mkdir()
        Folder(tmp_path / name).begin(setting, made)
    (tmp_path / "costs").mkdir()
    (tmp_path / "costs" / costs.FILE).write_text(json.dumps(figures()))
    assert main(["check", str(tmp_path / "good"), str(tmp_path / "costs")]) == 0
    assert "| met " in capsys.readouterr().out
    assert main(["--check", str(tmp_path / "good"), str(tmp_path / "costs")]) == 0
    assert main(["--check", str(tmp_path / "bad")]) == main(["check", str(tmp_path / "bad")]) == 1
    assert "1.11 [1.11, 1.11]" in capsys.readouterr().out
    for content in ("{}", "[]", "no json", '{"model": 1, "figures": {}}', '{"model": "m", "figures": {"memory": 3}}'):
        (tmp_path / "costs" / costs.FILE).write_text(content)
        assert main(["check", str(tmp_path / "costs")]) == 1
        assert "was not written by this bench" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "nothing")]) == 1
    assert "holds no run of the bench" in capsys.readouterr().err


@pytest.fixture(scope="module")
def engine():
    return tiny_engine("llama")


def prefilled(engine, seed):
    request = random_request("llama", seed)
    request.prefill = engine.target.prefill(request.inputs)
    return request


def test_costs_are_ratios_of_what_the_same_requests_take(engine, monkeypatch):
    monkeypatch.setattr(costs, "EARLY", 10)
    monkeypatch.setattr(costs, "LATE", 40)
    monkeypatch.setattr(costs, "AROUND", 5)
    settings = Settings(max_new_tokens=16, budget=8, record=False)
    found = dict(costs.measured(engine, [prefilled(engine, 1)], "recap", settings))
    assert set(found) == {"recording", "recording_waited", "outside", "growth"}
    assert 0 < found["outside"]["low"] <= found["outside"]["value"] <= found["outside"]["high"] < 100
    assert found["growth"]["low"] <= found["growth"]["value"] <= found["growth"]["high"]
    assert len(costs.table(found)) == 1 + len(found)


def test_growth_goes_beyond_the_end_that_the_model_would_choose(engine, monkeypatch):
    request = prefilled(engine, 1)
    answer = engine.answer(request, "ar", Settings(max_new_tokens=12)).tokens
    monkeypatch.setattr(engine.target.model.generation_config, "eos_token_id", answer[3])
    assert len(engine.answer(request, "ar", Settings(max_new_tokens=12)).tokens) <= 4
    for name, value in (("EARLY", 4), ("LATE", 20), ("AROUND", 2)):
        monkeypatch.setattr(costs, name, value)
    assert costs.growth(engine, request, "recap")["value"] > 0


def test_a_figure_is_a_ratio_of_medians_with_its_interval():
    """One slow moment in five doesn't move it."""
    assert costs.middle([2.0, 2.0, 2.0, 2.0, 90.0], [4.0] * 3)["value"] == 0.5
    found = costs.middle([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found["low"] < found["value"] == 3.0 < found["high"]
    with pytest.raises(RecapError, match="ask longer questions"):
        costs.middle([])


def test_growth_is_the_lanes_own_however_slow_the_machine_becomes(engine, monkeypatch):
    """A machine that slows down with every step, and a lane whose steps double from the twentieth token on."""
    for name, value in (("EARLY", 8), ("LATE", 40), ("AROUND", 6)):
        monkeypatch.setattr(costs, name, value)
    clock = itertools.count(1)

    class Slower(type(engine)):
        def run(self, request, lane, settings):
            for said in range(0, settings.max_new_tokens, 2 if lane == "recap" else 1):
                step = SimpleNamespace(root_position=said, seconds=2.0 if lane == "recap" and said > 20 else 1.0)
                yield SimpleNamespace(step=step, n_tokens=said, done=said >= settings.max_new_tokens - 2)

    monkeypatch.setattr(costs, "_step_s", lambda step: next(clock) * step.seconds)
    monkeypatch.setattr(costs, "Engine", Slower)
    found = costs.growth(engine, prefilled(engine, 1), "recap")
    assert found["value"] == pytest.approx(2.0, rel=0.1)


@pytest.mark.skipif(not X86, reason="FBGEMM is of x86 processors")
@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_packed_layers_are_timed_against_the_same_weights_and_are_back_afterwards(kind, monkeypatch):
    engine = tiny_engine(kind)
    assert costs.packing(engine) == {}, "nothing is packed"
    for weight in engine.target.model.parameters():
        weight.data = weight.data.half().float()
    before = {name: layer for name, layer in engine.target.model.named_modules() if type(layer) is nn.Linear}
    pack(engine.target.model)
    layers = [layer for layer in engine.target.model.modules() if isinstance(layer, PackedLinear)]
    for name, packed in engine.target.model.named_modules():
        if isinstance(packed, PackedLinear):
            plain = costs.unpacked(packed)
            assert torch.equal(plain.weight, before[name].weight)
            assert (plain.bias is None) == (before[name].bias is None)
            assert plain.bias is None or torch.equal(plain.bias, before[name].bias)
    monkeypatch.setattr(costs, "ROUNDS", 2)
    found = costs.packing(engine)
    assert set(found) == {"packing_1", "packing_9"} and all(figure["value"] > 0 for figure in found.values())
    assert [layer for layer in engine.target.model.modules() if isinstance(layer, PackedLinear)] == layers
    assert len(costs.table(found)) == 3


def test_the_peak_of_memory_is_that_of_this_process(engine):
    held = costs.peak_mb(engine, [prefilled(engine, 1)], "recap", Settings(max_new_tokens=8))
    assert 50 < held < 10_000


def test_the_script_for_a_gpu_works_with_tiny_shapes_and_says_where_there_is_none(capsys, monkeypatch):
    heads, *found = gpu.step_cost(gpu.TRIAL, "cpu")
    assert [row[0] for row in found] == list(gpu.TINY) and all(len(row) == len(heads) for row in found)
    assert all(cell.endswith(" ms") for row in found for cell in row[2:-1])
    name, (build, shape) = next(iter(gpu.TINY.items()))
    random = gpu.random_engine(name, build, shape, "cpu", "float32")
    requests = [gpu.random_request(random, 12)]
    settings = Settings(max_new_tokens=12, budget=8, record=False)
    assert list(gpu.compared(random, requests, settings)) == ["1 of 1"] * len(ALL_LANES)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu.main([]) == 1
    assert "no CUDA device" in capsys.readouterr().err
