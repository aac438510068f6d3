"""The lesson is well-formed, its rules find their step in any trace, and what it says is true of what it shows."""

import re
from dataclasses import replace

import numpy as np
import pytest
from app_fakes import make_trace

from app import lesson_view, texts
from app.figures.lesson import cost_figure, mask_figure
from app.lesson import PAGES, PANELS
from app.lesson_facts import FACTS, code, fill
from app.lesson_picks import HANDY, Moment, accepted_of_line, first_line, only
from app.lesson_view import SHOWN, moment_of, question_card, recorded, scene_card, sources_line
from recap_engine.trace import ROOT, TraceError
from recap_engine.tree import CandidateTree

RECORDED = sorted({page.view.trace for page in PAGES})
FACT = re.compile(r"\{(\w+)\}")


def a_trace(name):
    try:
        return recorded(name)
    except TraceError:
        pytest.skip(f"the trace {name} is not recorded here")


def told(page, moment):
    return "\n".join(fill(text, moment) for text in (page.body, page.question, page.answer))


def shown(title):
    """The page of that title, and what it points at in its own recorded trace."""
    page = next(page for page in PAGES if page.title == title)
    return page, moment_of(page, a_trace(page.view.trace))


# ---- the data ----


def test_there_are_ten_to_twelve_pages_of_different_titles():
    assert 10 <= len(PAGES) <= 12
    assert len({page.title for page in PAGES}) == len(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_a_page_has_everything_and_no_number_of_its_own(page):
    assert page.body.strip() and page.question.endswith("?") and page.answer and page.sources
    assert page.view.panels and page.view.panels <= set(PANELS)
    assert "*" not in page.question + page.answer, "only the body is Markdown"
    for text in (page.body, page.question, page.answer):
        assert set(FACT.findall(text)) <= set(FACTS)
        assert not re.search(r"\d", text), "a number must be computed from the trace"
    assert len(re.sub(r"[{}*]", "", page.body).split()) < 210, "a page is short"


def test_every_fact_is_told_and_every_panel_can_be_shown():
    text = " ".join(page.body + page.question + page.answer for page in PAGES)
    assert set(FACTS) == set(FACT.findall(text))
    assert set(PANELS) == set(SHOWN) == {name for page in PAGES for name in page.view.panels}


def test_the_sources_are_named():
    links = "".join(sources_line(page) for page in PAGES)
    for source in "2611.05894 2408.08696 2211.17192 2302.01318 2305.09781 2401.10774 prompt-lookup-decoding".split():
        assert source in links


def test_what_the_paper_does_not_say_is_called_our_choice():
    page = next(page for page in PAGES if "entropy-confidence" in page.body)
    assert "gives no formula" in " ".join(page.body.split())
    assert "our choice" in page.body


# ---- rules and facts in any trace ----


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
@pytest.mark.parametrize("name", ["made-up", *RECORDED])
def test_every_rule_finds_a_step_and_every_fact_is_told(page, name):
    trace = make_trace(steps=4) if name == "made-up" else a_trace(name)
    moment = moment_of(page, trace)
    assert 0 <= moment.number < moment.lane.n_steps
    assert all(0 <= node < len(moment.step.tokens) for node in moment.nodes)
    text = told(page, moment)
    assert not FACT.search(text) and "None" not in text
    for panel in page.view.panels:
        assert SHOWN[panel](moment)


def test_numbers_follow_the_trace():
    page = PAGES[0]
    assert {told(page, moment_of(page, make_trace(steps=steps))) for steps in (3, 5)} != 1
    few, many = (told(page, moment_of(page, make_trace(steps=steps))) for steps in (3, 5))
    assert few != many and "**9 passes**" in few and "**15 passes**" in many


def test_token_texts_cannot_become_markup():
    trace = make_trace(steps=3)
    bad = replace(
        trace, token_text={token: "<img src=x onerror=1>*`[a](b)" for token in trace.token_text}, question="<b>"
    )
    for page in PAGES:
        moment = moment_of(page, bad)
        for text in (told(page, moment), question_card(page, moment), scene_card(page, moment)):
            assert "<img src=x" not in text and "<b></b>" not in text
    assert "`" not in code(0, moment) and "*" not in code(0, moment)


# ---- what the pages say is true of what they show ----


def test_the_line_is_right_for_a_while_and_then_wrong():
    _, moment = shown("Guess, then check")
    step = moment.step
    assert step.parents == list(range(-1, len(step.tokens) - 1))
    decisions = step.decisions
    assert decisions[:2] == ["accepted"] * 2 and "rejected" in decisions and decisions[-1] == "unreached"
    original = moment.whole.steps[moment.number]
    assert step.emitted == original.emitted[: len(step.emitted)]


def test_the_surest_mistake_was_rejected():
    page, moment = shown("Never another word")
    assert moment.step.decisions[moment.node] == "rejected"
    assert "the very same" in told(page, moment)


def test_the_tree_beat_its_line():
    _, moment = shown("A tree beats a line")
    assert len(moment.step.accepted) > accepted_of_line(moment.step)
    assert moment.nodes and not set(moment.nodes) & set(first_line(moment.step))


def test_the_masked_tree_forks_and_is_small():
    _, moment = shown("The tree mask")
    assert len(set(moment.step.parents)) < len(moment.step.parents) <= HANDY
    assert len(moment.step.accepted) >= 2
    assert moment.node == moment.step.accepted[-1]


def test_the_one_token_record_misled_and_came_from_another_picture():
    page, moment = shown("One token is a short memory")
    assert moment.step.decisions[moment.node] == "rejected"
    assert "another picture" in told(page, moment)


def test_a_longer_key_knew_better():
    page, moment = shown("Three keys, two lifetimes")
    assert moment.step.decisions[moment.node] == "accepted"
    assert "would have said" in told(page, moment)


def test_the_weighed_records_differ():
    _, moment = shown("Whom to trust")
    recalled = moment.step.recalled[moment.step.parents[moment.node] + 1]
    assert len(set(recalled) - {None}) >= 2
    _, other = shown("Three keys, two lifetimes")
    assert (moment.number, moment.node) != (other.number, other.node), "two pages, two examples"


def test_the_trees_of_the_cost_page_have_many_sizes():
    _, moment = shown("How large a tree?")
    assert len({len(step.tokens) for lane in moment.trace.lanes.values() for step in lane.steps}) > 4


@pytest.mark.parametrize("name", RECORDED)
def test_a_part_of_a_tree_is_a_step_of_its_own(name):
    for step in a_trace(name).lanes["recap"].steps:
        line = only(step, first_line(step))
        assert len(line.accepted) == accepted_of_line(step) <= len(step.accepted)
        for part in (line, only(step, range(min(HANDY, len(step.tokens))))):
            path = [part.tokens[node] for node in part.accepted]
            assert part.emitted == [*path, *([] if part.bonus is None else [part.bonus])]
            assert part.emitted == step.emitted[: len(part.emitted)]
            assert [part.parents[node] for node in part.accepted] == [ROOT, *part.accepted][: len(path)]
        assert only(step, range(len(step.tokens))) == step


# ---- its own figures ----


def test_the_mask_is_the_engines():
    step = make_trace(steps=3).lanes["recap"].steps[1]
    tree = CandidateTree((0, 0, 0))
    for parent, token in zip(step.parents, step.tokens, strict=True):
        tree.add(parent, token, 0.5, None)
    seen = np.array(mask_figure(step, {}, node=4).data[0].z) > 0
    assert (seen == (tree.mask(-1.0) == 0)).all()
    assert parent_row(step, 4) in np.flatnonzero(seen[5])


def parent_row(step, node):
    return 0 if step.parents[node] == ROOT else step.parents[node] + 1


def test_the_cost_chart_has_a_point_per_step():
    trace = make_trace(steps=5)
    figure = cost_figure(trace)
    assert [len(points.x) for points in figure.data] == [lane.n_steps for lane in trace.lanes.values()]


# ---- without the recordings ----


def test_the_lesson_reads_what_the_command_records():
    from recap_engine import recordings

    assert lesson_view.FOLDER == recordings.FOLDER
    assert set(RECORDED) <= set(recordings.RECORDED)


def test_missing_recordings_are_told_in_one_friendly_sentence(monkeypatch, tmp_path):
    import gradio as gr

    monkeypatch.setattr(lesson_view, "FOLDER", tmp_path)
    recorded.cache_clear()
    with gr.Blocks(), gr.Tab("Lesson") as tab:
        part = lesson_view.lay_out_lesson(tab)
    try:
        update = lesson_view.show_page(part, 3)
    finally:
        recorded.cache_clear()
    assert texts.NO_RECORDINGS in update[part.scene]
    assert not any(update[panel]["visible"] for panel in part.panels.values())
    assert set(update) <= set(part.shown)


def test_a_moment_without_nodes_points_at_the_first():
    trace = make_trace(steps=2)
    assert Moment(trace, trace.lanes["recap"], 0).node == 0
