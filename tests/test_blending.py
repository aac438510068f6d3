"""What a memory that persists makes of two records under one key."""

import random

import pytest

from recap_engine.blending import LATER, SURE, blend, blend_into, latest, said
from recap_engine.memory import Record
from recap_engine.weighting import TEMPER, chances


def test_a_blend_holds_some_of_each_chance_and_reads_like_a_record():
    earlier = Record([1, 2], [0.9, 0.1], 0.2, (1, 0, True))
    later = Record([3, 1], [0.6, 0.4], 0.4, (2, 5, False))
    blended = blend(earlier, later)
    old, new = dict(zip(earlier.tokens, earlier.chances)), dict(zip(later.tokens, later.chances))
    sums = {1: (1 - LATER) * old[1] + LATER * new[1], 2: (1 - LATER) * old[2], 3: LATER * new[3]}
    best = sorted(sums, key=sums.get, reverse=True)[:2]
    assert blended.tokens == best
    assert blended.chances == pytest.approx([sums[token] / sum(sums[t] for t in best) for token in best])
    assert chances(blended.probabilities) == pytest.approx(blended.chances)
    assert sum(blended.probabilities) == pytest.approx(1.0)
    assert (blended.entropy, blended.written) == (pytest.approx(0.2 + 0.2 * LATER), (2, 5, False))
    assert earlier.tokens == [1, 2] and later.tokens == [3, 1]


@pytest.mark.parametrize(("before", "after", "alone"), [(SURE, SURE, True), (SURE, 0.79, False), (0.79, SURE, False)])
def test_of_two_that_are_sure_of_the_same_token_the_later_stands_for_both(before, after, alone):
    earlier = Record([1, 2], [before, 0.1], 0.2, (1, 0, True))
    later = Record([1, 3], [after, 0.1], 0.4, (2, 5, False))
    assert (blend(earlier, later) is later) == alone
    of_another = Record([4, 1], [0.9, 0.1], 0.2, (1, 0, True))
    assert set(blend(of_another, later).tokens) == {1, 4}


def test_said_are_the_records_of_accepted_positions():
    accepted, rejected = Record([1], [1.0], 0.0, (1, 0, True)), Record([1], [1.0], 0.0, (1, 0, False))
    assert said({5: accepted, 6: rejected}) == {5: accepted}


def random_record(source: random.Random, k: int, written: int = 0) -> Record:
    """Of few words, so that two share some; now and then certain, with zeros after the first."""
    weights = sorted((source.random() ** 3 for _ in range(k)), reverse=True)
    if source.random() < 0.2:
        weights[1:] = [0.0] * (k - 1)
    total = sum(weights) * source.uniform(1.0, 1.5)
    return Record(source.sample(range(20), k), [w / total for w in weights], source.random(), (written, 0, True))


def spelt_out(earlier: Record, later: Record) -> tuple[list[int], list[float], list[float], float]:
    """The rule, step by step: tokens, probabilities, chances and entropy of a blend."""
    union = dict.fromkeys([*earlier.tokens, *later.tokens])
    old, new = (dict(zip(record.tokens, chances(record.probabilities), strict=True)) for record in (earlier, later))
    sums = {token: (1 - LATER) * old.get(token, 0.0) + LATER * new.get(token, 0.0) for token in union}
    best = sorted(sums, key=lambda token: -sums[token])[: max(len(earlier.tokens), len(later.tokens))]
    shares = [sums[token] / sum(sums[t] for t in best) for token in best]
    raised = [share ** (1 / TEMPER) for share in shares]
    mass = (1 - LATER) * sum(earlier.probabilities) + LATER * sum(later.probabilities)
    return best, [mass * r / sum(raised) for r in raised], shares, (1 - LATER) * earlier.entropy + LATER * later.entropy


def test_blends_of_records_and_of_blends_follow_the_rule():
    source = random.Random(0)
    pairs = [(random_record(source, source.choice([4, 8])), random_record(source, 8, n)) for n in range(300)]
    pairs += [(blend(*pair), random_record(source, source.choice([1, 8]))) for pair in pairs[:100]]
    for pair in pairs:
        made = blend(*pair)
        tokens, probabilities, shares, entropy = spelt_out(*pair)
        assert len(set(made.tokens)) == 8
        assert made.chances == pytest.approx(shares)
        assert made.probabilities == pytest.approx(probabilities)
        assert made.entropy == pytest.approx(entropy)
        assert made.written == pair[1].written
        likely = [token for token, share in zip(tokens, shares, strict=True) if share > 0]
        assert made.tokens[: len(likely)] == likely


def test_of_what_is_found_together_the_last_under_a_key_is_blended_and_keys_share_records():
    source = random.Random(1)
    first, second, third = (random_record(source, 8, number) for number in (1, 2, 3))
    tables = {5: first}, {(4, 5): first}, {}
    blend_into(*zip(tables, latest([((3, 4, 5), second), ((9, 9, 5), third)])))
    assert tables[0][5].chances == blend(first, third).chances
    assert tables[1] == {(4, 5): tables[1][4, 5], (9, 5): third}
    assert tables[1][4, 5].chances == blend(first, second).chances
    assert tables[2] == {(3, 4, 5): second, (9, 9, 5): third}

    tables = {5: first}, {(4, 5): first}, {(3, 4, 5): first}
    blend_into(*zip(tables, latest([((3, 4, 5), second)])))
    assert tables[0][5] is tables[1][4, 5] is tables[2][3, 4, 5]
