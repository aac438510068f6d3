"""Fusion: weights, ranking, shares."""

import pytest

from recap_engine.memory import Record
from recap_engine.weighting import LENGTH, TEMPER, WEIGHTINGS, fuse, share


def record(entropy=0.2, **probabilities):
    return Record([int(n[1:]) for n in probabilities], list(probabilities.values()), entropy, (1, 0, True))


ONE, TWO, THREE = record(0.5, t1=0.5, t2=0.3), record(0.1, t2=0.8, t3=0.1), record(0.2, t3=0.6, t1=0.2)


def shares(proposal, token):
    return [share(record, weight, token) for record, weight in zip(proposal.recalled, proposal.weights)]


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("recalled", [(ONE, TWO, THREE), (ONE, None, None), (ONE, TWO, None), (ONE, ONE, ONE)])
def test_weights_sum_to_one_candidates_fall_and_shares_add_up(name, recalled):
    proposal = fuse(recalled, WEIGHTINGS[name])
    assert sum(proposal.weights) == pytest.approx(1.0)
    probabilities = [p for _, p in proposal.candidates]
    assert probabilities == sorted(probabilities, reverse=True)
    for token, probability in proposal.candidates:
        assert sum(shares(proposal, token)) == pytest.approx(probability)
        assert 0.0 < probability <= 1.0


def test_entropy_confidence_is_the_documented_formula():
    proposal = fuse((ONE, TWO, THREE), WEIGHTINGS["entropy-confidence"])
    confidence = [0.5 * 0.5, 0.8 * 0.9, 0.6 * 0.8]
    weights = [length * c for length, c in zip(LENGTH, confidence)]
    assert proposal.weights == pytest.approx([w / sum(weights) for w in weights])
    fused = dict(proposal.candidates)
    one, two = tempered(0.3, 0.5), tempered(0.8, 0.1)
    assert fused[2] == pytest.approx((weights[0] * one + weights[1] * two) / sum(weights))
    assert shares(proposal, 2) == pytest.approx([weights[0] * one / sum(weights), weights[1] * two / sum(weights), 0])


def tempered(probability, other):
    """The tempered chance of one of two tokens."""
    return probability**TEMPER / (probability**TEMPER + other**TEMPER)


def test_tempering_keeps_the_order_and_flattens():
    assert tempered(0.9, 0.1) > 0.5
    assert record(t1=0.9, t2=0.1).chances == pytest.approx([tempered(0.9, 0.1), tempered(0.1, 0.9)])
    assert record(t1=0.9, t2=0.1).chances[0] < 0.9


def test_a_sure_record_outweighs_a_vague_one_of_the_same_length():
    sure, vague = record(0.0, t1=0.9), record(0.9, t2=0.3)
    weights = WEIGHTINGS["entropy-confidence"]((vague, None, sure))
    assert weights[2] / LENGTH[2] > 10 * weights[0] / LENGTH[0]


def chances(record):
    return list(zip(record.tokens, record.chances, strict=True))


def test_alternatives():
    assert fuse((ONE, TWO, THREE), WEIGHTINGS["longest-match"]).candidates == chances(THREE)
    assert fuse((ONE, TWO, None), WEIGHTINGS["longest-match"]).candidates == chances(TWO)
    assert fuse((ONE, TWO, THREE), WEIGHTINGS["last-token"]).candidates == chances(ONE)
    assert fuse((ONE, TWO, None), WEIGHTINGS["uniform"]).weights == (0.5, 0.5, 0.0)


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_nothing_recalled_proposes_nothing(name):
    assert fuse((None, None, None), WEIGHTINGS[name]).candidates == []


def test_a_record_without_any_information_proposes_nothing():
    uniform = record(1.0, t1=0.01, t2=0.01)
    assert fuse((uniform, None, None), WEIGHTINGS["entropy-confidence"]).candidates == []


def test_the_last_token_alone_has_no_say_where_it_holds_nothing():
    assert fuse((None, TWO, THREE), WEIGHTINGS["last-token"]).candidates == []


def test_the_halves_of_the_weighting_look_at_one_thing_each():
    narrow, likely = record(0.1, t1=0.4, t2=0.3), record(0.6, t2=0.6, t1=0.1)
    assert WEIGHTINGS["entropy-only"]((narrow, narrow, likely)) == pytest.approx((0.9, 2 * 0.9, 4 * 0.4))
    assert WEIGHTINGS["confidence-only"]((narrow, None, likely)) == pytest.approx((0.4, 0.0, 4 * 0.6))
