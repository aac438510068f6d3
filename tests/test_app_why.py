"""Why a candidate is there: what is explained equals the trace, and sums to the fused score."""

import re

import pytest
from app_fakes import TOKEN_TEXT, make_lane, make_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from app.why import explain, last_written
from app.why_panel import why_of
from recap_engine.trace import StepTrace


def trace_with(lane):
    trace = make_trace(steps=1)
    trace.lanes = {lane.name: lane}
    return trace


@given(nodes=st.integers(1, 60), seed=st.integers(0, 10**6), name=st.sampled_from(["recap", "recap+", "tr"]))
@settings(max_examples=25, deadline=None)
def test_the_shares_of_a_node_are_the_traces_and_sum_to_its_fused_score(nodes, seed, name):
    lane = make_lane(name, [nodes] * 2, seed=seed)
    trace = trace_with(lane)
    step = lane.steps[1]
    for node in range(nodes):
        why = explain(trace, lane, 1, node)
        shares = [source.share for source in why.sources] + [0.0] * (3 - len(why.sources))
        assert shares == pytest.approx(step.shares[node], abs=1e-9)
        assert sum(shares) == pytest.approx(why.fused, abs=1e-9)
        assert why.fused == step.fused[node]
        assert (why.decision == "accepted") == (why.choice == why.token and why.decision != "unreached")


def test_the_key_is_made_of_the_nodes_own_ancestors():
    lane = make_lane("recap", [60] * 3)
    trace, step = trace_with(lane), lane.steps[2]
    node = next(node for node, depth in enumerate(step.depths) if depth >= 4)
    parent = step.parents[node]
    grand = step.parents[parent]
    one, two, three = explain(trace, lane, 2, node).sources
    assert one.key == (step.tokens[parent],)
    assert two.key == (step.tokens[grand], step.tokens[parent])
    assert three.key[1:] == two.key


def test_a_record_of_another_picture_is_marked():
    trace = make_trace(nodes=60, steps=8)
    lane = trace.lanes["tr"]
    found = {True: 0, False: 0}
    for number, step in enumerate(lane.steps):
        for node in range(0, len(step.tokens), 7):
            (row,) = explain(trace, lane, number, node).sources
            panel = why_of(trace, "tr", number, node)
            assert ("from another picture" in panel) == row.other_picture
            assert row.other_picture == (lane.pictures[row.request] != trace.image_sha)
            found[row.other_picture] += 1
    assert found[True] and found[False]


def test_the_panel_shows_what_the_target_said_and_whether_it_chose_the_token():
    trace = make_trace(nodes=40, steps=10)
    lane = trace.lanes["recap"]
    for number, step in enumerate(lane.steps):
        for node in (0, *step.accepted, len(step.tokens) - 1):
            panel = why_of(trace, "recap", number, node)
            wanted = {"accepted": "was accepted", "rejected": "was rejected", "unreached": "was never reached"}
            assert wanted[step.decisions[node]] in panel
            said = lane.records.tokens[step.rows[step.parents[node] + 1]]
            target = panel.split("What the target said here")[1]
            assert target.count('scope="row"') == len(said)


def test_the_panel_of_recap_plus_says_that_its_records_persist_and_are_blended():
    trace = make_trace(nodes=60, steps=6, plus=True)

    def first(lane, fits):
        """A step and a node with such a source that has a record."""
        return next(
            (number, node)
            for number, step in enumerate(lane.steps)
            for node in range(len(step.tokens))
            if any(source.lines and fits(source) for source in explain(trace, lane, number, node).sources)
        )

    number, node = first(trace.lanes["recap+"], lambda source: source.other_picture and source.order > 1)
    panel = why_of(trace, "recap+", number, node)
    assert re.findall(r"<h4>(\d-gram, \w+)</h4>", panel) == [f"{order}-gram, persistent" for order in (1, 2, 3)]
    assert "last from another picture" in panel and "last written:" in panel and "Blended:" in panel
    cards = why_of(trace, "recap", *first(trace.lanes["recap"], lambda source: source.order == 2)).split("</section>")
    (local,) = [card for card in cards if "2-gram, local" in card]
    assert "written:" in local and "lended" not in local and "last written" not in local
    assert "Blended:" not in why_of(trace, "tr", 1, 0)


def test_the_bonus_token_tells_why_it_was_not_drafted():
    trace = make_trace(nodes=40, steps=12)
    lane = trace.lanes["recap"]
    kinds = set()
    for number, step in enumerate(lane.steps):
        why = explain(trace, lane, number, len(step.tokens))
        assert (why.node, why.decision, why.token, why.target_rank) == (None, "bonus", step.bonus, 0)
        assert why.choice == step.bonus
        panel = why_of(trace, "recap", number, len(step.tokens))
        assert "Why not" in panel
        assert ("Nothing was drafted here" in panel) == (why.siblings == 0)
        kinds.add(why.siblings > 0)
    assert kinds == {True, False}


def test_what_a_key_last_held_is_found_again_in_the_steps_before():
    lane = make_lane("recap", [40] * 6)
    trace = trace_with(lane)
    for row in range(41):
        key = trace.key(lane, lane.steps[5], row)[-1:]
        slow = None
        for step in lane.steps[:5]:
            kept = set(step.accepted)
            order = [*(n + 1 for n in range(len(step.tokens)) if n not in kept), 0, *(n + 1 for n in step.accepted)]
            for other in order:
                if trace.key(lane, step, other)[-1:] == key:
                    slow = step.rows[other]
        assert last_written(trace, lane, 5, key) == slow
    assert last_written(trace, lane, 0, (3,)) is None


def test_a_step_without_anything_recorded_says_so():
    lane = make_lane("recap", [5])
    step = lane.steps[0]
    lane.steps[0] = StepTrace(step.root_token, 0, bonus=step.bonus, emitted=[step.bonus])
    assert "without recording" in why_of(trace_with(lane), "recap", 0, 0)
    assert why_of(trace_with(lane), "recap", 0, None) == ""


def test_tokens_from_outside_never_become_markup():
    trace = make_trace(nodes=30, steps=3)
    trace.token_text = {token: "<img src=x onerror=alert(1)>" for token in TOKEN_TEXT}
    for node in range(31):
        panel = why_of(trace, "recap", 1, node)
        assert "<img" not in panel and re.search("&lt;img", panel)
