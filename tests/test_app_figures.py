"""The figures and tables show what the trace says, and nothing else."""

import re
import time

import pytest
from app_fakes import TOKEN_TEXT, make_lane, make_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from app.figures import phases_figure, progress_figure, speedup_figure, tidy_rows, tree_figure
from app.inspector import (
    inspectable,
    legend,
    node_choices,
    node_table,
    step_facts,
    telling_node,
    telling_step,
    view_step,
)
from app.marks import LANES, ORDER_COLOURS, SOURCES, seconds, shortened, visible
from recap_engine.trace import DECISIONS, RequestTrace, StepTrace


def named(figure, name):
    return next(trace for trace in figure.data if trace.name == name)


@pytest.mark.parametrize("nodes", [1, 8, 24, 80])
def test_the_tree_has_one_marker_a_node_with_its_depth_source_and_decision(nodes):
    for step in make_lane("recap", [nodes] * 4, seed=nodes).steps:
        markers = named(tree_figure(step, SOURCES["recap"], TOKEN_TEXT), "nodes")
        assert list(markers.x) == step.depths
        assert list(markers.marker.line.color) == [ORDER_COLOURS[order] for order in step.orders]
        filled = [colour != "rgba(0,0,0,0)" for colour in markers.marker.color]
        assert filled == [decision == "accepted" for decision in step.decisions]
        faint = [opacity < 1 for opacity in markers.marker.opacity]
        assert faint == [decision == "unreached" for decision in step.decisions]


def test_a_ring_marks_the_nodes_on_which_orders_agree():
    step = make_lane("recap", [40]).steps[0]
    rings = named(tree_figure(step, SOURCES["recap"], TOKEN_TEXT), "rings")
    assert len(rings.x) == sum(agree > 1 for agree in step.agree)


def test_the_hover_text_tells_everything_of_a_node():
    step = make_lane("recap", [40]).steps[0]
    for node, text in enumerate(named(tree_figure(step, SOURCES["recap"], TOKEN_TEXT), "nodes").hovertext):
        for known in (f"{step.fused[node]:.3f}", f"{step.path[node]:.3f}", f"{step.target_probs[node]:.3f}"):
            assert known in text
        assert f"rank {step.target_ranks[node] + 1}" in text
        assert step.decisions[node] in text
        assert f"{step.orders[node]}-gram" in text


def test_the_bold_path_runs_from_the_root_over_the_accepted_nodes_to_the_bonus_token():
    step = max(make_lane("recap", [30] * 12).steps, key=lambda step: len(step.accepted))
    path = named(tree_figure(step, SOURCES["recap"], TOKEN_TEXT), "accepted edges")
    assert list(path.x).count(None) == len(step.accepted) + 1


def test_a_step_without_nodes_or_bonus_is_drawn_as_its_root():
    figure = tree_figure(StepTrace(root_token=1, root_position=0), SOURCES["recap"], TOKEN_TEXT)
    assert len(named(figure, "nodes").x or ()) == 0
    assert list(named(figure, "root").x) == [0]


def test_no_two_nodes_of_a_depth_share_a_row():
    for step in make_lane("tr", [80] * 5).steps:
        children = {}
        for node, parent in enumerate(step.parents):
            children.setdefault(parent, []).append(node)
        rows = tidy_rows(children)
        assert min(rows.values()) == 0
        for depth in set(step.depths):
            level = sorted(rows[node] for node, at in enumerate(step.depths) if at == depth)
            assert all(below - above > 0.999 for above, below in zip(level, level[1:]))


def test_a_deep_subtree_beside_a_shallow_one_stays_in_the_figure():
    rows = tidy_rows({-1: [0, 1], 1: [2, 3, 4, 5, 6]})  # the first child has no children of its own
    assert min(rows.values()) == 0
    assert rows[1] - rows[0] == 1


def test_the_figure_of_80_nodes_takes_less_than_a_tenth_of_a_second():
    step = make_lane("tr", [80]).steps[0]
    times = []
    for _ in range(8):
        start = time.thread_time()  # of this thread's own work: other programs may keep the machine busy
        tree_figure(step, SOURCES["recap"], TOKEN_TEXT).to_json()
        times.append(time.thread_time() - start)
    assert min(times) < 0.1


def test_tokens_from_outside_never_become_markup():
    step = make_lane("recap", [20], seed=5).steps[0]
    text = {token: "<img src=x>" for token in TOKEN_TEXT}
    lane = make_lane("recap", [20], seed=5)
    figure = tree_figure(step, SOURCES["recap"], text)
    labels = [label for name in ("nodes", "root", "bonus") for label in named(figure, name).text]
    assert len(labels) == 22
    assert "<img" not in "".join(labels) + "".join(named(figure, "nodes").hovertext) + step_facts(lane, 0, text)


@given(nodes=st.integers(0, 80), seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_the_figure_says_of_every_node_what_the_trace_says(nodes, seed):
    step = make_lane("recap", [nodes], seed=seed).steps[0]
    figure = tree_figure(step, SOURCES["recap"], TOKEN_TEXT)
    markers = named(figure, "nodes")
    assert list(markers.customdata or ()) == list(range(nodes))
    for node in range(nodes):
        assert sum(step.shares[node]) == pytest.approx(step.fused[node], abs=1e-9)
        shares = re.search(r"shares: 1-gram (\S+) · 2-gram (\S+) · 3-gram ([\d.]+)", markers.hovertext[node]).groups()
        assert [float(share) for share in shares] == pytest.approx(step.shares[node], abs=5e-4)
        assert step.decisions[node] in markers.hovertext[node]
    edges = sum(list(named(figure, f"{decision} edges").x or ()).count(None) for decision in DECISIONS)
    assert edges == nodes + (step.bonus is not None)


@given(nodes=st.integers(1, 80), seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_every_chosen_node_stands_in_a_halo(nodes, seed):
    step = make_lane("recap", [nodes], seed=seed).steps[0]
    chosen = [0, nodes - 1, nodes]  # the last is the bonus token
    figure = tree_figure(step, SOURCES["recap"], TOKEN_TEXT, chosen)
    halo, markers, bonus = named(figure, "halo"), named(figure, "nodes"), named(figure, "bonus")
    places = list(zip(halo.x, halo.y, strict=True))
    assert places == [*((markers.x[n], markers.y[n]) for n in chosen[:2]), (bonus.x[0], bonus.y[0])]
    assert not named(tree_figure(step, SOURCES["recap"], TOKEN_TEXT), "halo").x


def test_a_saved_tree_brings_its_own_legend():
    shown = {
        trace.name
        for trace in tree_figure(make_lane("recap", [9]).steps[0], SOURCES["recap"], TOKEN_TEXT).data
        if trace.showlegend
    }
    assert {"1-gram, persistent", "2-gram, local", "3-gram, local", "bonus token", *DECISIONS} <= shown


def test_long_keys_that_outlive_their_request_have_a_shape_of_their_own_in_tree_legend_hover_and_table():
    for name, long_key in (("recap", ("circle", "local")), ("recap+", ("triangle-up", "persistent"))):
        step = make_lane(name, [60]).steps[0]
        assert set(step.orders) == {1, 2, 3}
        marks = {1: ("circle", "persistent"), 2: long_key, 3: long_key}
        figure = tree_figure(step, SOURCES[name], TOKEN_TEXT)
        nodes, table = named(figure, "nodes"), node_table(step, SOURCES[name], TOKEN_TEXT)
        for order, symbol, hover, source in zip(
            step.orders, nodes.marker.symbol, nodes.hovertext, table["source"], strict=True
        ):
            assert (symbol, source) == (marks[order][0], f"{order}-gram, {marks[order][1]}")
            assert f"source: {source}" in hover
        for order, (symbol, scope) in marks.items():
            assert named(figure, f"{order}-gram, {scope}").marker.symbol == symbol


def test_the_legend_names_the_sources_of_the_lanes_at_hand():
    def sources(*lanes):
        return re.findall(r"(\d-gram, \w+)", legend(lanes))

    assert sources("tr") == ["1-gram, persistent"]
    assert sources("recap") == ["1-gram, persistent", "2-gram, local", "3-gram, local"]
    assert sources("recap+") == [f"{order}-gram, persistent" for order in (1, 2, 3)]
    assert len(sources("recap", "recap+", "tr")) == 5
    assert legend(["recap"]).count("outlives") == 0 and legend(["recap+"]).count("outlives") == 2


def test_no_two_lanes_and_no_lane_and_source_share_a_colour():
    colours = [mark.colour for mark in LANES.values()] + list(ORDER_COLOURS.values())
    assert len(set(colours)) == len(colours)
    assert set(LANES) == set(SOURCES)


def test_progress_ends_where_each_lane_ends():
    trace = make_trace(plus=True)
    figure = progress_figure(trace)
    for name, lane in (("AR", "ar"), ("TR", "tr"), ("RECAP", "recap"), ("RECAP+", "recap+")):
        line = named(figure, name)
        assert line.y[-1] == trace.lanes[lane].n_tokens
        assert list(line.x[1:]) == [step.ended_s for step in trace.lanes[lane].steps]


def test_phases_add_up_and_what_precedes_decoding_stands_left_of_zero():
    trace = make_trace()
    figure = phases_figure(trace)
    for bar in figure.data:
        assert all(value <= 0 if bar.name in ("prefill", "seed") else value >= 0 for value in bar.x)
    lane = trace.lanes["recap"]
    drawn = sum(bar.x[2] for bar in figure.data if bar.x[2] > 0)
    assert drawn == pytest.approx(sum(lane.phase_seconds().values()))


def test_the_table_has_a_row_a_node():
    trace = make_trace(nodes=33)
    step = trace.lanes["recap"].steps[0]
    table = node_table(step, SOURCES["recap"], trace.token_text)
    assert len(table) == 33
    assert list(table["decision"]) == step.decisions
    assert list(table["depth"]) == step.depths


def test_speedup_is_the_time_of_ar_over_the_lane_for_as_many_tokens():
    trace = make_trace()
    ar, lane = trace.lanes["ar"], trace.lanes["recap"]
    line = named(speedup_figure(trace), "RECAP")
    for n, speedup in zip(line.x, line.y, strict=True):
        step = next(step for step in lane.steps if step.root_position + len(step.emitted) + 1 == n)
        assert speedup == pytest.approx(ar.steps[n - 2].ended_s / step.ended_s)
    assert all(speedup == 1.0 for speedup in named(speedup_figure(trace), "AR").y)
    del trace.lanes["ar"]
    assert not any(line.x for line in speedup_figure(trace).data)


def test_the_inspector_opens_where_most_was_accepted_and_skips_lanes_without_trees():
    trace = make_trace(plus=True)
    assert inspectable(trace) == ["recap", "recap+", "tr"]
    lane = trace.lanes["recap"]
    assert len(lane.steps[telling_step(lane)].accepted) == max(len(step.accepted) for step in lane.steps)


def test_a_step_number_past_the_end_shows_the_last_step():
    trace = make_trace(steps=4)
    assert "step 4 of 4" in view_step(trace, "recap", 99).facts


def test_every_node_and_the_bonus_token_can_be_chosen():
    step = make_lane("recap", [30] * 4).steps[1]
    choices = node_choices(step, TOKEN_TEXT)
    assert [value for _, value in choices] == list(range(31))
    assert "bonus" in choices[-1][0]
    assert telling_node(step) == (step.accepted[-1] if step.accepted else 0)
    assert telling_node(StepTrace(root_token=1, root_position=0)) is None


def test_made_up_traces_are_well_formed():
    trace = make_trace(nodes=40)
    assert RequestTrace.from_json(trace.to_json()).question == trace.question


def test_white_space_is_shown_and_long_text_cut():
    assert visible(" a\n") == "·a↵"
    assert visible("") == "∅"
    assert shortened("abcdef", 4) == "abc…"
    assert [seconds(value) for value in (0.0042, 0.5, 2.0)] == ["4.2 ms", "500 ms", "2.00 s"]
