"""The bench: its arithmetic on measurements made by hand, and whole runs with a random model; no time is asserted."""

import json
import random
from dataclasses import replace

import pytest
from tiny_models import generated, random_request, tiny_engine

from recap_engine.bench import report
from recap_engine.bench.__main__ import main
from recap_engine.bench.calibrate import TR_BUDGETS
from recap_engine.bench.html import cost_figure, page
from recap_engine.bench.lanes import LANES, Kind, Lane, Plan, callable_lane, decoder_lane, engine_lane
from recap_engine.bench.oracle import Oracle, best_sizes
from recap_engine.bench.ratios import WHOLE, headlines, mean_accepted, ratio, rows, speedups
from recap_engine.bench.results import Folder, Measurement, Setting
from recap_engine.bench.session import FITTING, MEASURED, WARMING, Session
from recap_engine.bench.suites import Case, Suite, drawn, in_turn, read
from recap_engine.decode import decode
from recap_engine.decoders import Autoregressive
from recap_engine.errors import RecapError
from recap_engine.settings import Settings
from recap_engine.stepcost import CONTEXT, LONG, StepCost

TOKENS = 16


class Numbers:
    """A tokenizer that spells ids out."""

    def decode(self, tokens, skip_special_tokens=True):
        return " ".join(map(str, tokens))


@pytest.fixture
def engine(monkeypatch):
    """A random model that takes any question: its length is the seed of a random prompt. `asked` keeps what it got."""
    engine = tiny_engine("llama")
    engine.processor = Numbers()
    engine.step_cost = StepCost.free(8)
    engine.asked = []

    def prepare(question, image=None, history=()):
        engine.asked.append((question, list(history)))
        return random_request("llama", seed=len(question))

    engine.prepare = prepare
    return engine


def case(suite, number, turns=1, answer=None):
    questions = tuple("?" * (10 * number + turn) for turn in range(1, turns + 1))
    return Case(suite, str(number), questions, lambda: None, answer)


SUITES = [
    Suite("one", [case("one", n) for n in (1, 2, 3)], [case("one", 8), case("one", 9)]),
    Suite("two", [case("two", n, turns=2) for n in (4, 5)], []),
]


def session(engine, lanes=tuple(LANES), folder=None, suites=SUITES, **more):
    settings = Settings(max_new_tokens=TOKENS, record=False)
    return Session(engine, suites, lanes, settings, Setting({"lanes": list(lanes)}, {}), folder=folder, **more)


def test_a_run_measures_every_lane_on_every_turn_and_all_give_the_ids_of_generate(engine, tmp_path):
    run = session(engine, folder=Folder(tmp_path / "new" / "run"))
    progress = list(run.run())
    assert [(p.done, p.total) for p in progress if p.what == MEASURED] == [(n, 5) for n in range(1, 6)]
    assert [m.lane for m in run.measurements] == list(LANES) * 7
    assert all(m.identical and m.tokens == TOKENS and m.decode_s > 0 for m in run.measurements)
    assert set(run.setting.budgets) == {"tr-best", "tr-same"}
    report.write(run.folder, run.setting, run.measurements)
    assert {p.name for p in run.folder.path.iterdir()} == {
        "results.jsonl",
        "summary.json",
        "run.json",
        "table.csv",
        "table.md",
        "report.html",
    }
    assert run.folder.read() == (run.setting, run.measurements)
    others = 7 * (len(LANES) - 1)
    assert f"identical to generate: {others} of {others} runs" in (run.folder.path / "table.md").read_text()
    page = (run.folder.path / "report.html").read_text()
    assert (
        "Plotly.newPlot" in page
        and "<script src" not in page
        and f"identical to generate: {others} of {others}" in page
    )


def test_no_lane_needs_fewer_steps_than_the_oracle(engine):
    run = session(engine, ("ar", "recap", "oracle"))
    list(run.run())
    steps = {(m.request, m.lane): m.steps for m in run.measurements}
    assert all(steps[request, "oracle"] <= steps[request, lane] for request, lane in steps)
    assert sum(steps[request, "oracle"] for request, lane in steps if lane == "ar") == 7 * 2  # 15 tokens, 9 a step


CURVES = {
    "flat": StepCost.free(8),
    "gentle": StepCost(tuple(1.0 + 0.03 * n for n in range(17))),
    "steep": StepCost(tuple(1.0 + 0.2 * n for n in range(17))),
    "dear from the third node on": StepCost((1.0, 1.05, 1.1, *(2.0 + 0.3 * n for n in range(14)))),
    "growing": StepCost(tuple(1.0 + 0.01 * n for n in range(17)), tuple(0.01 * n for n in range(17))),
}


@pytest.mark.parametrize("curve", CURVES)
def test_no_lane_under_the_same_cost_and_depth_takes_fewer_steps_or_less_time_than_the_oracle(engine, curve):
    """Time by the curve, so that nothing depends on a clock."""
    engine.step_cost = CURVES[curve]
    settings = Settings(max_new_tokens=40, max_depth=5)
    shorter = 0
    for seed in range(4):
        request = random_request("llama", seed, words=40)
        request.prefill = engine.target.prefill(request.inputs)
        cost = engine.cost_for(request, settings)
        traces = {lane: engine.answer(request, lane, settings) for lane in ("ar", "recap", "recap+")}
        known = Oracle(traces["ar"].tokens, cost, settings.max_depth)
        *_, last = decode(engine.target, known, request.prefill, settings, str)
        assert last.trace.tokens == traces["ar"].tokens
        least = sum(cost.seconds[len(step.emitted) - 1] for step in last.trace.steps)
        for trace in traces.values():
            assert last.trace.n_steps <= trace.n_steps
            assert least <= sum(cost.seconds[len(step.tokens)] for step in trace.steps) + 1e-9
            shorter += last.trace.n_steps < trace.n_steps
    assert shorter


def test_the_oracles_chains_are_the_quickest_way_to_the_end():
    """Against every way to cut an answer into steps."""
    rng = random.Random(0)

    def least(left, seconds):
        sizes = range(min(left, len(seconds)))
        return min((seconds[n] + least(left - n - 1, seconds) for n in sizes), default=0.0)

    for _ in range(50):
        tokens = rng.randrange(1, 11)
        seconds = [1.0]
        for _ in range(rng.randrange(6)):
            seconds.append(seconds[-1] + rng.choice((0.0, 0.1, 0.8)))
        sizes, left, time = best_sizes(tokens, seconds), tokens, 0.0
        while left:
            time, left = time + seconds[sizes[left]], left - sizes[left] - 1
        assert time == pytest.approx(least(tokens, seconds))


def test_calibration_questions_are_not_measured_and_without_them_no_budget_is_fitted(engine):
    run = session(engine, ("tr-best", "recap"))
    list(run.run())
    assert {m.case for m in run.measurements} == {"1", "2", "3", "4", "5"}
    run = session(engine, ("tr-best", "recap"), suites=SUITES[1:])
    list(run.run())
    assert {m.lane for m in run.measurements} == {"ar", "recap"}
    assert any("tr-best is left out" in note for note in run.setting.notes)


def test_a_second_turn_follows_the_models_own_first_answer(engine):
    list(session(engine, ("ar",), suites=SUITES[1:]).run())
    (first, none), (second, history) = engine.asked[-2:]
    answer = " ".join(map(str, generated(engine, random_request("llama", seed=len(first)), TOKENS)))
    assert none == [] and len(second) == len(first) + 1
    assert history == [(first, answer)]


@pytest.mark.parametrize("cold", [False, True])
def test_cold_memories_are_emptied_before_each_request_and_hot_ones_only_after_the_warm_up(engine, monkeypatch, cold):
    forgotten = []

    def build(plan: Plan) -> Lane:
        return replace(engine_lane(plan, "tr"), forget=lambda: forgotten.append(None))

    monkeypatch.setitem(LANES, "mine", Kind("", build))
    list(session(engine, ("mine",), cold=cold).run())
    assert len(forgotten) == (8 if cold else 1)


@pytest.mark.parametrize("cold", [False, True])
def test_hot_memories_may_have_served_other_questions_which_are_not_measured(engine, cold):
    def first_request(earlier):
        suites = [Suite("one", [case("one", 1)], [], [case("one", n) for n in earlier])]
        run = session(engine, ("ar", "recap+"), suites=suites, cold=cold)
        progress = [(p.done, p.total, p.what) for p in run.run()]
        warming = [(n, len(earlier), WARMING) for n in range(1, len(earlier) + 1) if not cold]
        assert progress == [*warming, (1, 1, MEASURED)]
        return {m.lane: m.steps for m in run.measurements}, run.setting.notes

    steps, _ = first_request([])
    again, notes = first_request([3, 1])  # the same question, so its answer is in the memory
    assert again["ar"] == steps["ar"]
    assert again["recap+"] == steps["recap+"] if cold else again["recap+"] < steps["recap+"]
    assert ("memories had served 2 other questions" in notes) is not cold


def test_fitting_a_budget_tells_after_every_run_how_far_it_is_and_can_be_stopped(engine):
    run = session(engine, ("tr-best", "recap"))
    held = [case for suite in run.suites for case in suite.calibration]
    fitting = [p for p in run.run() if p.what == FITTING.format("tr-best")]
    assert len(fitting) == len(held) * len(TR_BUDGETS) > 0
    assert [(p.done, p.total) for p in fitting] == [(n, len(fitting)) for n in range(1, len(fitting) + 1)]
    assert fitting[-1].left_s == 0.0 < fitting[0].left_s

    told = []
    run = session(engine, ("tr-best", "recap"), stopped=lambda: len(told) == 2)
    for progress in run.run():
        told.append(progress)
    assert len(told) == 2 and not run.measurements


def test_an_interrupted_run_is_taken_up_and_a_run_of_another_kind_is_refused(engine, tmp_path):
    lanes = ("generate", "ar", "recap")
    run = session(engine, lanes, Folder(tmp_path))
    steps = run.run()
    next(steps), next(steps)
    steps.close()
    file = tmp_path / "results.jsonl"
    half = run.measurements[-4:]  # of the conversation: its second turn, and one lane of the first
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[: -len(half)]) + '{"suite": "tw')

    again = session(engine, lanes, Folder(tmp_path))
    progress = list(again.run())
    assert [(p.done, p.total) for p in progress] == [(n, 5) for n in range(2, 6)]
    assert any("taken up after 1 of 5" in note for note in again.setting.notes)
    assert again.measurements[: len(lanes)] == run.measurements[: len(lanes)]
    assert len(again.measurements) == len({(m.request, m.lane) for m in again.measurements}) == 7 * len(lanes)
    assert Folder(tmp_path).read()[1] == again.measurements

    assert list(session(engine, lanes, Folder(tmp_path)).run()) == []  # nothing is left
    with pytest.raises(RecapError, match="another run .lanes"):
        session(engine, ("ar",), Folder(tmp_path))


def test_a_run_that_is_taken_up_goes_on_under_the_curves_it_began_with(engine, tmp_path):
    """An older folder knows one context: it is opened, compared and taken up all the same."""
    began = StepCost((1.0, 1.2), (0.0, 0.01))
    engine.step_cost = began
    next(session(engine, ("ar", "recap"), Folder(tmp_path)).run())
    for expected, left_out in ((began, ()), (StepCost(began.seconds), ("step_cost_per_token",))):
        summary = json.loads((tmp_path / "summary.json").read_text())
        for name in left_out:
            del summary["setting"][name]
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        assert Folder(tmp_path).read()[0].cost == expected
        engine.step_cost = StepCost.free(3)
        next(session(engine, ("ar", "recap"), Folder(tmp_path)).run())
        assert engine.step_cost == expected
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 0
    assert "Step cost" in page(Folder(tmp_path).read()[0], Folder(tmp_path).read()[1])


def test_a_lane_that_lies_is_reported_with_the_place_and_the_margin(engine, monkeypatch):
    def lie(model, inputs, most):
        answer = generated(engine, random_request("llama", seed=11), most)
        return [*answer[:3], (answer[3] + 1) % 80, *answer[4:]]

    monkeypatch.setitem(LANES, "liar", Kind("lies", lambda plan: callable_lane(plan, lie)))
    monkeypatch.setitem(LANES, "short", Kind("stops early", lambda plan: callable_lane(plan, lambda *a: lie(*a)[:2])))
    run = session(engine, ("ar", "liar", "short"), suites=[Suite("one", [case("one", 1)], [])])
    list(run.run())
    _, liar, short = run.measurements
    assert (liar.differs_at, short.differs_at) == (3, 2)
    assert liar.margin > 0 and short.margin > 0
    said = report.sentences(run.setting, run.measurements)
    assert "identical to ar: 0 of 2 runs" in said
    assert f"liar differs on one 1, turn 1, at token 3: margin {liar.margin:.2e}" in said


def test_a_lane_of_ones_own_takes_a_function_or_a_decoder_and_one_that_fails_is_left_out(engine, monkeypatch):
    def fails(model, inputs, most):
        raise KeyError("no kernel here")

    monkeypatch.setitem(LANES, "fails", Kind("", lambda plan: callable_lane(plan, fails)))
    monkeypatch.setitem(LANES, "plain", Kind("", lambda plan: decoder_lane(plan, lambda *_: Autoregressive())))
    run = session(engine, ("generate", "ar", "fails", "plain"))
    list(run.run())
    assert list(run.setting.lanes) == ["generate", "ar", "plain"]
    assert "fails is left out: KeyError: 'no kernel here'" in run.setting.notes
    assert {m.steps for m in run.measurements} == {TOKENS - 1}
    with pytest.raises(RecapError, match="no lane 'magic'"):
        session(engine, ("magic",))


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava", "llama"])
def test_prompt_lookup_does_not_draft_the_placeholders_of_a_picture(kind):
    engine = tiny_engine(kind)
    request = random_request(kind, seed=0)
    ids = request.inputs["input_ids"]
    ids[0, -1] = ids[0, 3]  # the word before the picture: what followed it is looked up
    run = LANES["prompt-lookup"].build(Plan(engine, Settings(max_new_tokens=TOKENS))).run(request, [])
    assert run.tokens == generated(engine, request, TOKENS)


def test_a_case_that_cannot_be_asked_is_left_out_and_told(engine):
    prepare = engine.prepare

    def picky(question, *more):
        if len(question) == 21:
            raise RecapError("This prompt is too long.")
        return prepare(question, *more)

    engine.prepare = picky
    run = session(engine, ("ar", "recap"))
    assert len(list(run.run())) == 5
    assert {m.case for m in run.measurements} == {"1", "3", "4", "5"}
    assert "one 2 is left out: This prompt is too long." in run.setting.notes


def test_known_answers_are_looked_for_in_what_the_model_says(engine):
    said = " ".join(map(str, generated(engine, random_request("llama", seed=11), TOKENS)))
    cases = [case("one", 1, answer=f" {said[4:12].strip()} "), case("one", 2, answer="a unicorn"), case("one", 3)]
    run = session(engine, ("ar",), suites=[Suite("one", cases, [])])
    list(run.run())
    assert [m.right for m in run.measurements] == [True, False, None]
    assert "answers of ar that hold the expected words: 1 of 2" in report.sentences(run.setting, run.measurements)


@pytest.fixture
def questions(tmp_path):
    drawn("counting", 1, 0).cases[0].picture().save(tmp_path / "p.png")
    lines = [{"question": f"What {n}?", "image": "p.png", "category": "photos", "answer": "A dog"} for n in range(6)]
    lines += [{"question_id": 7, "turns": ["Write.", "Shorten it."], "reference": ["x"]}]
    file = tmp_path / "mine.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)))
    return file


def test_a_file_of_questions_gives_a_suite_per_category_and_holds_some_back(questions):
    assert read(questions.parent)[1].cases[0].questions == ("Write.", "Shorten it.")
    photos, mine = read(questions, count=3)
    assert (photos.name, len(photos.cases), len(photos.calibration)) == ("photos", 3, 2)
    assert (mine.name, len(mine.cases), len(mine.calibration)) == ("mine", 1, 0)
    assert photos.cases[1].name == "mine.jsonl:3" and photos.cases[1].answer == "A dog"
    assert photos.cases[0].picture() == questions.parent / "p.png" and mine.cases[0].picture() is None
    assert not {c.name for c in photos.cases} & {c.name for c in photos.calibration}
    (warm, _) = read(questions, count=3, warm=5)
    assert len(warm.earlier) == 1 and not {c.name for c in warm.earlier} & {
        c.name for c in warm.cases + warm.calibration
    }
    assert [c.suite for c in in_turn([photos.cases, mine.cases])] == ["photos", "mine", "photos", "photos"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{not json", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("{}", "either question or turns"),
        ('{"question": "a", "turns": ["b"]}', "either question or turns"),
        ('{"turns": []}', "list of questions"),
        ('{"turns": "b"}', "list of questions"),
        ('{"question": " "}', "must be text"),
        ('{"turns": ["a", 3]}', "must be text"),
        ('{"question": "a", "image": 3}', "path of a picture"),
        ('{"question": "a", "image": "none.png"}', "no picture 'none.png'"),
        ('{"question": "a", "answer": 3}', "answer must be text"),
        ('{"question": "a", "category": null}', "category must be text"),
    ],
)
def test_a_bad_line_is_refused_in_a_sentence_with_its_number(tmp_path, capsys, line, reason):
    (tmp_path / "q.jsonl").write_text('{"question": "a"}\n' + line)
    assert main(["--data", str(tmp_path / "q.jsonl")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("recap_engine.bench: q.jsonl, line 2: ") and reason in error and error.count("\n") == 1


def test_files_that_hold_no_questions_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "caf\xe9"}')
    for path, reason in (("empty.jsonl", "no questions"), ("latin.jsonl", "UTF-8"), ("", "holds 2 files"), ("x", "0")):
        with pytest.raises(RecapError, match=reason):
            read(tmp_path / path)
    with pytest.raises(RecapError, match="no suite 'poems'"):
        drawn("poems", 1, 0)


def test_built_in_suites_are_fresh_and_answered_in_sentences():
    suite = drawn("counting", 3, first_seed=1000)
    assert [int(c.name) >= 1000 for c in suite.cases] == [True] * 3
    assert not any("briefly" in question for c in suite.cases for question in c.questions)
    assert [len(c.questions) for c in drawn("two_turn", 2, 0).cases] == [2, 2]


def measurement(suite: str, number: int, lane: str, decode_s: float, steps: int = 10) -> Measurement:
    return Measurement(suite, str(number), 1, lane, 21, steps, 0.1, decode_s)


@pytest.fixture
def measurements():
    made = []
    for suite, ar, recap in (("table", 4.0, 1.0), ("chart", 2.0, 1.0)):
        for number in (1, 2):
            made += [
                replace(measurement(suite, number, "generate", ar + 0.3, 20), prefill_s=0.0),
                measurement(suite, number, "ar", ar, 20),
                measurement(suite, number, "recap", recap),
            ]
    return made


def test_speedup_is_the_baseline_over_the_lane_on_the_same_request(measurements):
    assert speedups(measurements, "recap", "ar") == {"table": [4.0, 4.0], "chart": [2.0, 2.0]}
    assert speedups(measurements, "recap", "ar", WHOLE)["chart"] == [pytest.approx(2.1 / 1.1)] * 2


def test_an_answer_of_one_token_has_no_speedup(measurements):
    one = [replace(m, case="9", tokens=1, steps=0, decode_s=0.0) for m in measurements[:3]]
    assert rows(measurements + one) and speedups(measurements + one, "recap", "ar")["table"] == [4.0, 4.0]
    assert "–" in report.text(Setting({}, {}), one)


def test_every_suite_counts_the_same(measurements):
    extra = [measurement("chart", 3, "ar", 2.0, 20), measurement("chart", 3, "recap", 1.0)]
    assert headlines(measurements + extra)["speed of recap / ar, decoding"].mean == 3.0


def test_interval_holds_the_mean_and_shrinks_to_a_point_without_spread():
    found = ratio([1.0, 2.0, 3.0, 4.0], [])
    assert found.low < 2.5 == found.mean < found.high
    assert str(ratio([2.0, 2.0, 2.0])) == "2.00 [2.00, 2.00]"
    assert ratio([]) is None


def test_the_cost_is_drawn_after_short_and_after_long_text():
    short, long = cost_figure(StepCost((0.001, 0.002), (0.0, 0.001))).data
    assert short.y == (1.0, 2.0) and long.y == pytest.approx((1.0, 2.0 + LONG - CONTEXT))
    assert len(cost_figure(StepCost((0.001, 0.002))).data) == 1


def test_tables_have_a_row_a_suite_and_one_for_the_mean(measurements):
    table = report.by_suite(rows(measurements))
    assert [row[0] for row in table] == ["suite", "table", "chart", "mean"]
    assert table[1][3] == "4.00, 2.00" and table[3][3] == "3.00, 2.00"
    assert mean_accepted([m for m in measurements if m.lane == "ar"]) == 1.0


def test_answers_are_told_apart_by_their_length(measurements):
    longer = [replace(m, case=f"long {m.case}", tokens=m.tokens + 100) for m in measurements]
    table = report.by_length([*longer, *measurements])
    assert [row[:2] for row in table] == [["answer", "requests"], ["up to 30", "4"], ["over 100", "4"]]
    assert report.by_length(measurements)[1][4] == "3.00, 2.00"
    apart = [replace(m, tokens=5, differs_at=4, margin=0.0) if m.lane == "recap" else m for m in longer]
    assert [row[0] for row in report.by_length(apart)] == ["answer", "over 100"]


def test_ar_is_compared_with_generate_in_whole_time(measurements):
    ratio = headlines(measurements)["time of ar / generate, whole request"]
    assert ratio.mean == pytest.approx((4.1 / 4.3 + 2.1 / 2.3) / 2)


def test_two_runs_are_laid_side_by_side(measurements, tmp_path, capsys):
    faster = [replace(m, decode_s=m.decode_s / 2) if m.lane == "recap" else m for m in measurements[3:]]
    for name, made, budget in (("a", measurements, 8), ("b", faster, 16)):
        (tmp_path / name).mkdir()
        Folder(tmp_path / name).begin(Setting({"budget": budget}, {"device": "cpu"}), made)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    lines = capsys.readouterr().out.splitlines()
    recap = next(line for line in lines if line.startswith("| recap"))
    assert [cell.strip() for cell in recap.strip("|").split("|")] == [
        "recap",
        "3.00 [3.00, 3.00]",
        "6.00 [6.00, 6.00]",
        "2.00 [2.00, 2.00]",
        "3",
    ]
    assert any(line.startswith("| table") for line in lines) and lines[-1] == "- budget: 8 and 16"
    assert main(["compare", str(tmp_path / "a"), str(tmp_path)]) == 1
    assert "holds no run of the bench" in capsys.readouterr().err
