"""The memory view counts what the trace says."""

import time

import pytest
from app_fakes import make_trace

from app.figures import acceptance_figure, accepted_figure, depth_figure, hits_figure, sizes_figure
from app.figures.memories import acceptance_table, by_depth, by_order, by_scope, lookups


@pytest.fixture(scope="module")
def trace():
    return make_trace(nodes=30, steps=15, plus=True)


def nodes_of(lane):
    return [(step, node) for step in lane.steps for node in range(len(step.tokens))]


@pytest.mark.parametrize("name", ["recap", "recap+", "tr"])
def test_tallies_count_every_candidate_once(trace, name):
    lane = trace.lanes[name]
    proposed, accepted = len(nodes_of(lane)), sum(len(step.accepted) for step in lane.steps)
    for tally in (by_order(lane), by_scope(lane), by_depth(lane)):
        assert sum(count.proposed for count in tally.values()) == proposed
        assert sum(count.accepted for count in tally.values()) == accepted
    for order, count in by_order(lane).items():
        assert count.proposed == sum(step.orders[node] == order for step, node in nodes_of(lane))
        assert count.accepted == sum(step.orders[node] == order for step in lane.steps for node in step.accepted)
    local = by_scope(lane).get("local")
    long = sum(step.orders[node] > 1 for step, node in nodes_of(lane))
    assert (local.proposed if local else 0) == (long if name == "recap" else 0)


def test_bars_show_the_tallies_of_the_drafting_lanes_side_by_side(trace):
    for figure in (acceptance_figure(trace), depth_figure(trace)):
        assert [bars.name for bars in figure.data] == ["RECAP", "RECAP+", "TR"]
    recap = acceptance_figure(trace).data[0]
    rates = {tick: rate for group, tick, rate in zip(*recap.x, recap.y, strict=True)}
    for order, count in by_order(trace.lanes["recap"]).items():
        assert rates[f"{order}-gram"] == pytest.approx(count.rate)
    for scope, count in by_scope(trace.lanes["recap"]).items():
        assert rates[scope] == pytest.approx(count.rate)


def test_the_histogram_covers_every_step(trace):
    for bars, name in zip(accepted_figure(trace).data, ("recap", "recap+", "tr"), strict=True):
        lane = trace.lanes[name]
        assert sum(bars.y) == pytest.approx(1.0)
        assert bars.y[0] == pytest.approx(sum(not step.accepted for step in lane.steps) / lane.n_steps)


def test_sizes_and_hits_follow_the_steps(trace):
    sizes = {line.name: list(line.y) for line in sizes_figure(trace).data}
    assert sizes["RECAP 3-gram, local"] == [step.memory["order3"] for step in trace.lanes["recap"].steps]
    assert sizes["TR 1-gram, persistent"] == [step.memory["order1"] for step in trace.lanes["tr"].steps]
    assert sizes["RECAP+ 3-gram, persistent"] == [step.memory["order3"] for step in trace.lanes["recap+"].steps]
    assert len(sizes) == 7
    looks = {(line.line.color, line.line.dash) for line in sizes_figure(trace).data}
    assert len(looks) == 7, "every line can be told from the others"
    hits = {line.name: list(line.y) for line in hits_figure(trace).data}
    found, tried = map(sum, zip(*(lookups(step, 2) for step in trace.lanes["recap"].steps), strict=True))
    assert hits["RECAP 2-gram, local"][-1] == pytest.approx(found / tried)
    for step in trace.lanes["recap"].steps:
        assert lookups(step, 1)[1] == len(set(step.parents))


def test_the_table_has_every_tally(trace):
    table = acceptance_table(trace)
    recap = table[(table["lane"] == "RECAP") & (table["by"] == "source")]
    assert dict(zip(recap["value"], recap["proposed"], strict=True)) == {
        f"{order}-gram": count.proposed for order, count in by_order(trace.lanes["recap"]).items()
    }


def test_a_lane_alone_and_no_drafting_lane_at_all_can_be_drawn(trace):
    draws = (sizes_figure, hits_figure, acceptance_figure, depth_figure, accepted_figure)
    for lanes in (["ar"], ["tr"], ["ar", "recap"]):
        alone = make_trace(steps=3)
        alone.lanes = {name: alone.lanes[name] for name in lanes}
        drafting = sum(name != "ar" for name in lanes)
        for draw in draws[2:]:
            assert len(draw(alone).data) == drafting


@pytest.mark.parametrize("draw", [sizes_figure, hits_figure, acceptance_figure, depth_figure, accepted_figure])
def test_each_figure_takes_less_than_a_tenth_of_a_second(draw):
    trace = make_trace(nodes=80, steps=40)
    times = []
    for _ in range(5):
        start = time.thread_time()
        draw(trace).to_json()
        times.append(time.thread_time() - start)
    assert sorted(times)[2] < 0.1
