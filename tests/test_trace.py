"""A true trace survives a round trip, and says what happened. (For the others, see test_trace_malformed.)"""

import pytest
from tiny_models import random_request, tiny_engine

from recap_engine.engine import ALL_LANES
from recap_engine.settings import Settings
from recap_engine.trace import RequestTrace
from recap_engine.weighting import chances


@pytest.fixture(scope="module")
def trace():
    engine = tiny_engine("qwen3_vl")
    settings = Settings(max_new_tokens=24, budget=12)
    for seed in (0, 1):  # the second request finds hot memories
        request = random_request("qwen3_vl", seed)
        request.image_sha = str(seed)
        lanes = [engine.answer(request, lane, settings) for lane in ALL_LANES]
    return engine.trace(request, lanes, settings)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_file_reads_back_the_same(trace, tmp_path, name):
    trace.save(tmp_path / name)
    read = RequestTrace.load(tmp_path / name)
    assert read.to_json() == trace.to_json()
    assert read.lanes["recap"].tokens == trace.lanes["recap"].tokens
    assert read.lanes["recap"].steps[-1].recalled == trace.lanes["recap"].steps[-1].recalled
    assert read.lanes["recap"].records.written == trace.lanes["recap"].records.written
    assert read.lanes["recap"].pictures == trace.lanes["recap"].pictures
    assert read.lanes["recap"].steps[-1].fused == pytest.approx(trace.lanes["recap"].steps[-1].fused, rel=1e-5)


def test_steps_say_what_happened(trace):
    for lane in trace.lanes.values():
        answer = [lane.first_token]
        for step in lane.steps:
            path = [step.tokens[node] for node in step.accepted]
            assert step.root_position == len(answer) - 1
            assert step.emitted == path + ([] if step.bonus is None else [step.bonus])
            answer += step.emitted
            for node, decision in enumerate(step.decisions):
                reached = step.parents[node] == -1 or step.parents[node] in step.accepted
                expected = "accepted" if node in step.accepted else "rejected" if reached else "unreached"
                assert decision == expected
                assert (step.target_ranks[node] == 0) == (decision == "accepted") or not reached
                assert sum(step.shares[node]) == pytest.approx(step.fused[node])
                assert step.agree[node] == sum(record is not None for record in lane.proposers(step, node)) >= 1
                assert lane.written(step, node) is not None
                assert 0.0 <= step.target_probs[node] <= 1.0
        assert answer == lane.tokens
        assert lane.mat == pytest.approx((lane.n_tokens - 1) / lane.n_steps)
        assert lane.decode_s == pytest.approx(sum(s.draft_s + s.verify_s + s.accept_s + s.update_s for s in lane.steps))
        assert [step.ended_s for step in lane.steps] == sorted(step.ended_s for step in lane.steps)


def test_sources_are_labelled(trace):
    token_recycling = [order for step in trace.lanes["tr"].steps for order in step.orders]
    recap = {order for step in trace.lanes["recap"].steps for order in step.orders}
    assert set(token_recycling) == {1}
    assert recap >= {1, 3}
    lane = trace.lanes["recap"]
    recalled = [recall for step in lane.steps for recall in step.recalled if recall]
    requests = {lane.records.written[one][0] for one, _, _ in recalled if one is not None}
    assert requests == {1, 2}, "some candidates were remembered from the request before"
    contextual = {lane.records.written[record][0] for recall in recalled for record in recall[1:] if record is not None}
    assert contextual == {2}, "contextual memory knows this request only"


def test_the_scope_of_a_source_is_its_lanes(trace):
    assert trace.lanes["recap"].scopes == {1: "persistent", 2: "local", 3: "local"}
    for lane in trace.lanes.values():
        nodes = lane.nodes_frame()
        for order, scope in zip(nodes["order"], nodes["scope"], strict=True) if len(nodes) else ():
            assert scope == ("local" if lane.name == "recap" and order > 1 else "persistent")
    assert 3 in set(trace.lanes["recap+"].nodes_frame()["order"])


def test_records_say_what_was_recalled_and_what_was_found(trace):
    for name in ("tr", "recap", "recap+"):
        lane = trace.lanes[name]
        for number, step in enumerate(lane.steps):
            inner = {parent + 1 for parent in step.parents}
            for row, (record, recalled, weights) in enumerate(zip(step.rows, step.recalled, step.weights, strict=True)):
                accepted = row == 0 or row - 1 in step.accepted
                assert lane.records.written[record] == (lane.request, number, accepted)
                assert (recalled is not None) == (weights is not None) == (row in inner)
                if weights:
                    assert sum(weights) == pytest.approx(1.0)
            for node, parent in enumerate(step.parents):
                proposers = zip(lane.proposers(step, node), step.weights[parent + 1], strict=True)
                for (record, weight), share in zip(proposers, step.shares[node], strict=True):
                    held = [] if record is None else lane.records.tokens[record]
                    rank = held.index(step.tokens[node]) if held else None
                    chance = 0.0 if rank is None else chances(lane.records.probabilities[record])[rank]
                    assert share == pytest.approx(weight * chance)
                said = step.rows[parent + 1]
                if step.target_ranks[node] < len(lane.records.tokens[said]):
                    assert lane.records.tokens[said][step.target_ranks[node]] == step.tokens[node]
        assert len(set(map(id, lane.records.tokens))) == len(lane.records), "a record has one entry"
    assert len(trace.lanes["ar"].records) == 0


def test_a_record_of_another_picture_is_known(trace):
    """The fixture's two requests had pictures "0" and "1"."""
    lane = trace.lanes["recap"]
    assert lane.request == 2
    assert lane.pictures == {1: "0", 2: "1"}
    assert {lane.is_other_picture(r) for r, written in enumerate(lane.records.written) if written[0] == 1} == {True}
    assert {lane.is_other_picture(r) for r, written in enumerate(lane.records.written) if written[0] == 2} == {False}


def test_a_rows_key_reaches_back_into_answer_and_prompt(trace):
    lane = trace.lanes["recap"]
    for step in lane.steps:
        before = [*trace.prompt_end, *lane.tokens[: step.root_position + 1]]
        keys = [trace.key(lane, step, row) for row in range(1 + len(step.tokens))]
        assert keys[0] == tuple(before[-3:])
        for node, parent in enumerate(step.parents):
            assert keys[node + 1] == (*keys[parent + 1][1:], step.tokens[node])


def test_frames_have_a_row_per_step_and_node(trace):
    lane = trace.lanes["recap"]
    steps, nodes = lane.steps_frame(), lane.nodes_frame(vocab_text=trace.token_text)
    assert len(steps) == lane.n_steps
    assert steps["emitted"].sum() == lane.n_tokens - 1
    assert len(nodes) == sum(len(step.tokens) for step in lane.steps)
    assert set(nodes["scope"]) <= {"persistent", "local"}
    assert len(lane.nodes_frame(step=3)) == len(lane.steps[3].tokens)
    assert trace.lanes["ar"].nodes_frame().empty


def test_equal_lanes_compare_as_identical(trace):
    assert trace.comparison().identical
    assert trace.comparison().reference == "ar"


def test_the_first_difference_comes_with_the_targets_margin(trace):
    changed = RequestTrace.from_json(trace.to_json())
    lane = changed.lanes["recap"]
    lane.tokens = [*lane.tokens[:5], 95, *lane.tokens[6:]]
    difference = changed.comparison().differences["recap"]
    assert (difference.index, difference.got) == (5, 95)
    assert difference.expected == trace.lanes["ar"].tokens[5]
    assert difference.margin == pytest.approx(trace.lanes["recap"].margin_at(5), rel=1e-4)
    assert difference.margin >= 0.0
    assert not changed.comparison().identical


def test_a_cancelled_lane_is_compared_as_far_as_it_came(trace):
    cut = RequestTrace.from_json(trace.to_json())
    lane = cut.lanes["tr"]
    lane.tokens = lane.tokens[:4]
    assert cut.comparison().differences["tr"].index == 4
    lane.stopped = "cancelled"
    assert cut.comparison().identical
