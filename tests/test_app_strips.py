"""The answer strips: every token once, in its column, in the colour of its source."""

import re
from html import unescape

from app_fakes import TOKEN_TEXT, make_lane, make_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from app.marks import BONUS_COLOUR, NEUTRAL, ORDER_COLOURS, visible
from app.strips import aligned_strips, answer_strip, origins


def boxes(strip, lane):
    """The (step, text, colour) of every token of one lane."""
    found = re.findall(
        rf'style="--source:([^"]+)" data-lane="{lane}"(?: data-step="(\d+)")? title="[^"]*">(.*?)</button>', strip
    )
    return [(int(step) if step else None, unescape(text), colour) for colour, step, text in found]


@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6), seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_every_token_of_the_answer_appears_once_with_its_step_and_source(sizes, seed):
    lane = make_lane("recap", sizes, seed=seed)
    shown = boxes(answer_strip(lane, 0, TOKEN_TEXT), "recap")
    assert [text for _, text, _ in shown] == [visible(TOKEN_TEXT[token]) for token in lane.tokens]
    steps = [None, *(number for number, step in enumerate(lane.steps) for _ in step.emitted)]
    assert [step for step, _, _ in shown] == steps
    colours = [NEUTRAL]
    for step in lane.steps:
        colours += [ORDER_COLOURS[step.orders[node]] for node in step.accepted]
        colours.append(BONUS_COLOUR if step.tokens else NEUTRAL)
    assert [colour for _, _, colour in shown] == colours


def test_the_tokens_of_the_step_are_marked_and_every_group_has_a_beginning():
    lane = make_trace().lanes["recap"]
    strip = answer_strip(lane, 2, TOKEN_TEXT)
    assert len(re.findall(r'class="[^"]*now[^"]*"', strip)) == len(lane.steps[2].emitted)
    assert len(re.findall(r'class="first[^"]*"', strip)) == 1 + lane.n_steps


def test_aligned_lanes_share_a_column_at_every_position():
    trace = make_trace()
    lanes = [trace.lanes["recap"], trace.lanes["tr"]]
    strip = aligned_strips(lanes, "tr", 1, TOKEN_TEXT)
    columns = strip.split('<span class="column">')[1:]
    assert len(columns) == max(lane.n_tokens for lane in lanes)
    for index, column in enumerate(columns):
        for lane in lanes:
            assert column.count(f'data-lane="{lane.name}"') == (index < lane.n_tokens)
    assert len(boxes(strip, "recap")) == lanes[0].n_tokens
    assert len(boxes(strip, "tr")) == lanes[1].n_tokens
    assert 'data-lane="tr" data-step="1"' in strip


def test_tokens_from_long_keys_that_outlive_their_request_are_marked():
    lane = make_lane("recap+", [40] * 6)
    orders = [step.orders[node] for step in lane.steps for node in step.accepted]
    strip = answer_strip(lane, 0, TOKEN_TEXT)
    assert len(re.findall(r'class="[^"]*outlives', strip)) == sum(order > 1 for order in orders) > 0
    assert "local" not in strip and "3-gram, persistent" in strip
    assert "outlives" not in answer_strip(make_lane("recap", [40] * 6), 0, TOKEN_TEXT)


def test_hovering_tells_probability_source_and_step():
    lane = make_lane("recap", [30] * 8)
    number = next(number for number, step in enumerate(lane.steps) if step.accepted)
    step = lane.steps[number]
    first = next(origin for origin in origins(lane) if origin.step == number)
    assert first.probability == step.target_probs[step.accepted[0]]
    told = re.findall(r'title="([^"]*)"', answer_strip(lane, number, TOKEN_TEXT))
    assert all(f"step {number + 1}" in words and "gave it" in words for words in told if f"step {number + 1}:" in words)
    last = [origin for origin in origins(lane) if origin.step == number][-1]
    row = step.accepted[-1] + 1
    assert last.probability == lane.records.probabilities[step.rows[row]][0]


def test_tokens_from_outside_never_become_markup():
    lane = make_lane("recap", [10] * 3)
    evil = {token: '"><img src=x onerror=alert(1)>' for token in TOKEN_TEXT}
    assert "<img" not in answer_strip(lane, 0, evil)
