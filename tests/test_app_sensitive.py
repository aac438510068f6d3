"""Image-sensitive states: the strip and the split say what the trace says."""

from app_fakes import make_trace

from app.figures import split_figure
from app.sensitive import (
    Counts,
    heat,
    heat_legend,
    heat_strip,
    pooled,
    sensitivity_table,
    split,
    split_sentence,
)
from recap_engine.trace import SENSITIVE_KL, is_sensitive


def same_answers(trace):
    """The made-up lanes answer differently; here RECAP alone is followed, and is its own reference."""
    lane = trace.lanes["recap"]
    trace.lanes = {"recap": lane}
    count = lane.n_tokens
    given = trace.sensitivity
    given.kl = [(0.1 * index) % 1.3 for index in range(count)]
    given.changed = [index % 5 == 0 for index in range(count)]
    return trace


def test_a_state_is_sensitive_if_the_choice_changes_or_the_distribution_moves_far():
    trace = same_answers(make_trace())
    for index, (kl, changed) in enumerate(zip(trace.sensitivity.kl, trace.sensitivity.changed, strict=True)):
        assert is_sensitive(trace.sensitivity, index) == (changed or kl > SENSITIVE_KL)


def test_the_split_counts_every_state_after_the_first_once():
    trace = same_answers(make_trace(steps=10))
    lane = trace.lanes["recap"]
    sensitive, other = split(trace)["recap"]
    assert sensitive.states + other.states == lane.n_tokens - 1
    assert sensitive.accepted + other.accepted == sum(len(step.accepted) for step in lane.steps)
    reached = sum(
        sum(parent in step.parents for parent in [-1, *step.accepted][: len(step.emitted)]) for step in lane.steps
    )
    assert sensitive.tried + other.tried == reached
    assert sensitive.states == sum(is_sensitive(trace.sensitivity, index) for index in range(1, lane.n_tokens))


def test_a_lane_is_followed_as_far_as_its_answer_is_the_reference():
    trace = make_trace(plus=True)
    parts = split(trace)
    assert set(parts) == {"recap", "recap+", "tr"}
    for name, (sensitive, other) in parts.items():
        first = trace.lanes["ar"].tokens
        same = next(i for i, (a, b) in enumerate(zip(first, trace.lanes[name].tokens, strict=False)) if a != b)
        assert sensitive.states + other.states == same - 1


def test_answers_are_pooled_by_adding_their_counts():
    one = {"recap": (Counts(3, 2, 1), Counts(5, 5, 4))}
    two = {"recap": (Counts(1, 1, 1), Counts(2, 1, 0)), "tr": (Counts(1, 1, 0), Counts())}
    assert pooled([one, two]) == {"recap": (Counts(4, 3, 2), Counts(7, 6, 4)), "tr": (Counts(1, 1, 0), Counts())}
    assert Counts(4, 3, 2).rate == 2 / 3 and Counts().rate == 0.0
    assert pooled([]) == {}


def test_the_heat_strip_has_every_token_once_and_marks_changed_choices():
    trace = same_answers(make_trace())
    strip = heat_strip(trace)
    assert strip.count('class="token') == len(trace.sensitivity.kl)
    assert strip.count("<sup") == sum(trace.sensitivity.changed)
    trace.token_text = {token: "<img src=x>" for token in trace.token_text}
    assert "<img" not in heat_strip(trace)
    assert "nats" in heat_legend()


def test_heat_grows_with_the_divergence_from_none_to_full():
    values = [heat(kl) for kl in (-1e-9, 0.0, 0.01, 0.1, 0.5, 2.0, 5.0, 50.0)]
    assert values == sorted(values) and values[0] == 0.0 and values[-1] == 1.0


def test_without_a_sensitivity_there_is_nothing_to_show():
    trace = make_trace()
    trace.sensitivity = None
    assert split(trace) == {} and heat_strip(trace) == "" and sensitivity_table(trace).empty
    assert split_sentence({}) == ""


def test_the_figure_and_the_table_show_the_counts():
    trace = same_answers(make_trace(steps=10))
    own = split(trace)
    figure = split_figure({"this answer": own, "this visit": pooled([own, own])})
    bars = next(bars for bars in figure.data if bars.name == "RECAP")
    assert list(bars.y) == [count.rate for count in own["recap"]] * 2
    assert bars.text[0] == f"{own['recap'][0].accepted}/{own['recap'][0].tried}"
    table = sensitivity_table(trace)
    assert list(table["kl"]) == trace.sensitivity.kl
    assert f"{own['recap'][0].accepted} of {own['recap'][0].tried}" in split_sentence(own)
