"""Running the lanes of one request: order, streaming, Stop, and what the visitor is told."""

import pytest
from app_fakes import FakeEngine, make_trace

from app.cards import empty_cards, lane_cards, notice, verdict
from app.lanes import Ask, StopFlag, answer, turn_order
from app.marks import DEFAULT_LANES, LANES
from recap_engine.errors import RecapError
from recap_engine.settings import Settings
from recap_engine.trace import RequestTrace


def ask(question="What is it?", lanes=DEFAULT_LANES, turn=0, picture=None):
    return Ask(question, picture, lanes, Settings(), turn)


def test_lanes_run_one_after_another_and_end_in_a_trace():
    engine = FakeEngine()
    *_, last = answer(engine, ask(), StopFlag())
    assert engine.ran == ["ar", "tr", "recap"]
    assert list(last.trace.lanes) == ["ar", "tr", "recap"]
    assert all(run.state == "done" for run in last.runs.values())


def test_recap_plus_runs_as_a_fourth_lane_when_it_is_asked_for():
    engine = FakeEngine(make_trace(steps=6, plus=True))
    moments = list(answer(engine, ask(lanes=list(LANES)), StopFlag()))
    trace = moments[-1].trace
    assert engine.ran == list(trace.lanes) == ["ar", "tr", "recap", "recap+"]
    card = lane_cards(moments[-1].runs).split('data-lane="recap+"')[1]
    lane = trace.lanes["recap+"]
    assert f"<dd>{lane.mat:.2f}</dd>" in card and f"<dd>{lane.speedup_over(trace.lanes['ar']):.2f}×</dd>" in card
    for other in trace.lanes.values():
        other.tokens = trace.lanes["ar"].tokens
    assert "All 4 lanes gave the very same" in verdict(trace) and "RECAP+ " in verdict(trace)


def test_the_step_cost_is_measured_first_for_either_lane_that_needs_it():
    for lanes, needed in ((["ar", "tr"], False), (["recap"], True), (["recap+"], True)):
        told = [
            moment.doing for moment in answer(FakeEngine(make_trace(steps=2, plus=True)), ask(lanes=lanes), StopFlag())
        ]
        assert any("step costs" in words for words in told) == needed


def test_the_first_lane_changes_from_turn_to_turn_but_the_cards_keep_their_places():
    assert turn_order(DEFAULT_LANES, 1) == ["tr", "recap", "ar"]
    assert turn_order(["recap", "ar"], 1) == ["recap", "ar"]
    assert turn_order([], 3) == []
    *_, last = answer(FakeEngine(), ask(turn=2), StopFlag())
    assert list(last.runs) == list(last.trace.lanes) == ["ar", "tr", "recap"]


def test_the_page_is_told_while_a_lane_runs_but_not_after_every_step():
    engine = FakeEngine(step_s=0.02)
    texts = [moment.runs["ar"].text for moment in answer(engine, ask(lanes=["ar"]), StopFlag())]
    seen = list(dict.fromkeys(filter(None, texts)))
    assert 2 <= len(seen) < len(engine.played.lanes["ar"].steps)
    assert all(longer.startswith(shorter) for shorter, longer in zip(seen, seen[1:]))


def test_stop_ends_the_run_after_the_step_at_hand_and_keeps_what_there_is():
    engine, stop = FakeEngine(step_s=0.05), StopFlag()
    for moment in answer(engine, ask(), stop):
        stop.pressed = stop.pressed or moment.runs["ar"].n_steps >= 2
    lane = moment.trace.lanes["ar"]
    assert lane.stopped == "cancelled"
    assert 2 <= lane.n_steps <= 4
    assert engine.ran == engine.closed == ["ar"]
    assert moment.runs["ar"].state == "stopped"
    assert moment.runs["recap"].state == "waiting"
    assert RequestTrace.from_json(moment.trace.to_json()).lanes["ar"].tokens == lane.tokens


def test_a_visitor_who_leaves_ends_the_run():
    engine = FakeEngine(step_s=0.05)
    moments = answer(engine, ask(), StopFlag())
    while not next(moments).runs["ar"].n_steps:
        pass
    moments.close()
    assert engine.closed == ["ar"]


def test_what_the_engine_says_of_a_bad_request_reaches_the_caller():
    with pytest.raises(RecapError, match="ask a question"):
        list(answer(FakeEngine(), ask(question="  "), StopFlag()))


def test_a_card_shows_text_and_numbers_and_keeps_markup_out():
    *_, last = answer(FakeEngine(), ask(), StopFlag())
    last.runs["ar"].text = "<b>bold</b>"
    html = lane_cards(last.runs)
    assert "&lt;b&gt;bold" in html
    for lane in last.trace.lanes.values():
        assert f"<dd>{lane.mat:.2f}</dd>" in html
    assert "1.00×" in html
    assert empty_cards(DEFAULT_LANES).count("data-lane") == 3


def same(lane, tokens):
    lane.tokens = list(tokens)
    return lane


def test_the_verdict_says_whether_the_answers_are_the_same_and_where_they_part():
    trace = make_trace()
    tokens = trace.lanes["ar"].tokens
    for name in ("tr", "recap"):
        same(trace.lanes[name], tokens)
    assert f"very same {len(tokens)} tokens" in verdict(trace)
    assert "RECAP" in verdict(trace)

    trace.lanes["recap"].tokens[4] = tokens[4] + 1
    trace.lanes["recap"].steps[0].margins = [0.25] * 12
    told = verdict(trace)
    assert "at token 5" in told
    assert "margin" in told
    assert "Token Recycling leaves" not in told

    trace.lanes = {"recap": trace.lanes["recap"]}
    assert "nothing to compare" in verdict(trace)


def test_the_verdict_of_a_stopped_run_compares_as_far_as_it_came():
    trace = make_trace()
    tokens = trace.lanes["ar"].tokens
    same(trace.lanes["tr"], tokens)
    same(trace.lanes["recap"], tokens[:5]).stopped = "cancelled"
    assert "Stopped" in verdict(trace)


def test_a_notice_is_one_escaped_sentence():
    assert "&lt;" in notice("a < b")
    assert notice("") == ""
