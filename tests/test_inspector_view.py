"""The inspector's handlers: what each event shows, and how long a step takes the server."""

import time
from dataclasses import replace

import gradio as gr
import pytest
from app_fakes import FakeEngine, make_trace
from test_page import handler

from app import texts
from app.lanes import Ask
from app.page import build_page
from app.serving import Serving
from recap_engine.errors import RecapError
from recap_engine.settings import Settings
from recap_engine.trace import RequestTrace


@pytest.fixture(scope="module")
def trace():
    return make_trace(nodes=80, steps=30)


@pytest.fixture(scope="module")
def page():
    return build_page(Serving(FakeEngine()))


def call(page, name, *given):
    """The handler's updates by element id, for handlers that return a dict of them."""
    return {part.elem_id: value for part, value in handler(page, name)(*given).items()}


class Event:
    """What a token or a node of the page sends."""

    def __init__(self, **data):
        vars(self).update(data)


def test_a_step_shows_facts_tree_choices_why_and_table(page, trace):
    shown = call(page, "show_step", trace, "recap", 3)
    assert set(shown) == {"facts", "tree", "node", "why", "nodes", "nodes-save"}
    assert "step 3 of 30" in shown["facts"] and 'data-step="2"' in shown["facts"]
    assert len(shown["node"]["choices"]) == 81
    assert f'data-node="{shown["node"]["value"]}"' in shown["why"] or "bonus" in shown["why"]
    assert shown["nodes"].count("data-row=") == 80


def test_previous_and_next_stop_at_the_ends(page, trace):
    assert call(page, "show_next", trace, "recap", 3)["step"] == 4
    assert call(page, "show_next", trace, "recap", 30)["step"] == 30
    assert call(page, "show_previous", trace, "recap", 1)["step"] == 1
    assert handler(page, "show_next")(None, "recap", 3) == gr.skip()


def test_a_token_opens_its_step_and_if_need_be_its_lane(page, trace):
    shown = call(page, "open_token", trace, "recap", Event(lane="recap", step=6))
    assert shown["step"] == 7 and "lane" not in shown
    shown = call(page, "open_token", trace, "recap", Event(lane="tr", step=2))
    assert shown["lane"] == "tr" and shown["step"]["value"] == 3
    for nowhere in (Event(lane="tr", step=99), Event(lane="nobody", step=0)):
        assert handler(page, "open_token")(trace, "recap", nowhere) == gr.skip()


def test_play_starts_over_at_the_end_moves_on_and_stops_by_itself(page, trace):
    started = handler(page, "toggle")(trace, "recap", 30, False)
    assert True in started.values()
    assert {part.elem_id: value for part, value in started.items()}["step"] == 1
    assert call(page, "tick", trace, "recap", 4)["step"] == 5
    assert "Play" in call(page, "tick", trace, "recap", 30)["play"]
    assert "Play" in call(page, "toggle", trace, "recap", 4, True)["play"]


def test_choosing_a_node_explains_it(page, trace):
    for name, event in (
        ("choose_point", Event(node=5)),
        ("choose_node", 5),
    ):
        shown = call(page, name, trace, "recap", 2, event)
        assert shown["node"] == 5 and 'data-node="5"' in shown["why"]
    assert "Why not" in call(page, "choose_node", trace, "recap", 2, 80)["why"]
    for nowhere in (-1, 81, None):
        assert handler(page, "choose_node")(trace, "recap", 2, nowhere) == gr.skip()


def test_aligning_shows_both_lanes_in_one_strip(page, trace):
    assert 'data-lane="tr"' in handler(page, "align")(trace, "recap", 1, True)
    assert 'data-lane="tr"' not in handler(page, "align")(trace, "recap", 1, False)


def test_moving_the_slider_takes_the_server_less_than_150_ms(page, trace):
    plot = next(part for part in page.blocks.values() if part.elem_id == "tree")
    table = next(part for part in page.blocks.values() if part.elem_id == "nodes")
    times = []
    for at in range(2, 13):
        start = time.thread_time()  # of this thread's own work: other programs may keep the machine busy
        shown = call(page, "show_step", trace, "tr" if at % 2 else "recap", at)
        plot.postprocess(shown["tree"])
        table.postprocess(shown["nodes"])
        times.append(time.thread_time() - start)
    assert sorted(times)[len(times) // 2] < 0.15


def test_the_other_tabs_are_filled_when_they_are_opened(page, trace):
    board, *figures, save = handler(page, "show_race")(trace)
    assert "data-race" in board and len(figures) == 3 and "recap-steps.csv" in save
    *figures, save = handler(page, "show_memories")(trace)
    assert len(figures) == 5 and "recap-acceptance.json" in save
    assert handler(page, "show_race")(None)[0] == gr.skip()


def looked(page, trace, asked=None, pool=None):
    pool, look, message, area, strip, *_ = handler(page, "show_sensitive")(trace, asked, pool or {})
    return pool, look, message, area, strip


def test_the_image_sensitive_states_say_why_there_is_nothing_to_see_yet(page, trace):
    fresh = replace(trace, sensitivity=None)
    asked = Ask("What?", "a.png", ["recap"], Settings())
    assert looked(page, fresh, asked)[1]["interactive"]
    _, look, message, area, _ = looked(page, fresh)
    assert not look["interactive"] and texts.SENSITIVITY_NEEDS_RUN in message and not area["visible"]
    assert texts.SENSITIVITY_NEEDS_PICTURE in looked(page, replace(fresh, image_sha=None), asked)[2]


def test_looking_without_the_picture_adds_to_the_trace_and_to_the_visit(trace):
    engine = FakeEngine(trace)
    page = build_page(Serving(engine))
    asked = Ask("What?", "a.png", ["recap"], Settings())
    found, message = handler(page, "look")(replace(trace, sensitivity=None), asked)
    assert isinstance(found, RequestTrace) and found.sensitivity == trace.sensitivity and message == ""
    assert engine.prepared == [("What?", "a.png")]
    pool, look, message, area, strip = looked(page, found, asked)
    assert area["visible"] and not look["visible"] and "token" in strip
    assert trace.sensitivity.without in message
    again, *_ = looked(page, found, asked, pool)
    assert list(again) == list(pool)  # one answer counts once
    more, *_ = looked(page, replace(found, created="later"), asked, pool)
    assert len(more) == 2

    def broken(*_):
        raise RecapError("Say this.")

    engine.sensitivity = broken
    assert "Say this." in handler(page, "look")(replace(trace, sensitivity=None), asked)[1]
