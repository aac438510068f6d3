"""Entropy-confidence weighting: several records of the target's own predictions become one ranked list of candidates.

The paper's abstract names the weighting and gives no formula; this one is our choice. An order n with record r_n has

    confidence  c_n = p_top * (1 - H_n / ln|V|)        weight  w_n = LENGTH[n] * c_n
    score(y)    = sum_n share_n(y)                     share_n(y) = w_n q_n(y) / sum_m w_m

where q_n is p_n tempered: p_n(y)^TEMPER over its sum in the top-k (see `chances`),
so a sharp record outweighs a vague one, and of two equally sharp ones the longer key counts more. The alternatives
below change only the weights and exist for comparison.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from recap_engine.tree import Proposal

if TYPE_CHECKING:
    from recap_engine.memory import Recalled, Record

TEMPER = 0.4  # our choice: the argmax after a key varies with the picture far more than one distribution there says
LENGTH = (1.0, 2.0, 4.0)  # how much more a key of one, two, three tokens is trusted at equal confidence
NO_WEIGHTS = (0.0, 0.0, 0.0)
Weights = tuple[float, float, float]  # of orders 1, 2, 3
Weigh = Callable[["Recalled"], Weights]  # from three records; not negative, 0 where there is no record


def chances(probabilities: Sequence[float]) -> list[float]:
    """A record's probabilities tempered, [k], sum 1: how likely each token is the argmax when the key returns."""
    tempered = [probability**TEMPER for probability in probabilities]
    total = sum(tempered)
    return [chance / total for chance in tempered]


def entropy_confidence(recalled: "Recalled") -> Weights:
    """Sure records and long keys weigh more."""
    one, two, three = recalled
    return (
        LENGTH[0] * one.probabilities[0] * (1.0 - one.entropy) if one else 0.0,
        LENGTH[1] * two.probabilities[0] * (1.0 - two.entropy) if two else 0.0,
        LENGTH[2] * three.probabilities[0] * (1.0 - three.entropy) if three else 0.0,
    )


def entropy_only(recalled: "Recalled") -> Weights:
    """Distributions that are narrow as a whole weigh more, whatever their best token has."""
    one, two, three = (length * (1.0 - r.entropy) if r else 0.0 for length, r in zip(LENGTH, recalled, strict=True))
    return one, two, three


def confidence_only(recalled: "Recalled") -> Weights:
    """Records whose best token is likely weigh more, whatever the rest looks like."""
    one, two, three = (length * r.probabilities[0] if r else 0.0 for length, r in zip(LENGTH, recalled, strict=True))
    return one, two, three


def uniform(recalled: "Recalled") -> Weights:
    """Every order that has a record weighs the same."""
    one, two, three = recalled
    return float(one is not None), float(two is not None), float(three is not None)


def longest_match(recalled: "Recalled") -> Weights:
    """Only the longest key that has a record counts, as in prompt-lookup decoding."""
    one, two, three = recalled
    return (0.0, 0.0, 1.0) if three else (0.0, 1.0, 0.0) if two else (1.0, 0.0, 0.0) if one else NO_WEIGHTS


def last_token(recalled: "Recalled") -> Weights:
    """Only the one-token key counts, as in Token Recycling."""
    return (1.0, 0.0, 0.0) if recalled[0] else NO_WEIGHTS


WEIGHTINGS: dict[str, Weigh] = {
    "entropy-confidence": entropy_confidence,
    "entropy-only": entropy_only,
    "confidence-only": confidence_only,
    "uniform": uniform,
    "longest-match": longest_match,
    "last-token": last_token,
}


def fuse(recalled: "Recalled", weigh: Weigh) -> Proposal:
    """Candidates by falling fused probability. Pure."""
    one, two, three = weigh(recalled)
    total = one + two + three
    if total <= 0.0:
        return Proposal([], recalled, NO_WEIGHTS)
    weights = one / total, two / total, three / total
    first, second, third = recalled
    if second is third:  # one position's record under both long keys, or none
        parts = ((first, weights[0]), (second, weights[1] + weights[2]))
    else:
        parts = ((first, weights[0]), (second, weights[1]), (third, weights[2]))
    having = [(record, weight) for record, weight in parts if record and weight]
    if len(having) == 1:
        record, _ = having[0]
        return Proposal(list(zip(record.tokens, record.chances)), recalled, weights)
    scores: dict[int, float] = {}
    so_far = scores.get
    for record, weight in having:
        for token, chance in zip(record.tokens, record.chances):
            scores[token] = so_far(token, 0.0) + weight * chance
    return Proposal(sorted(scores.items(), key=itemgetter(1), reverse=True), recalled, weights)


def share(record: "Record | None", weight: float, token: int) -> float:
    """What one order gave to the fused probability of `token`; the three shares sum to it. 0 if none was recorded."""
    if record is None or not record.probabilities or token not in record.tokens:
        return 0.0
    return weight * record.chances[record.tokens.index(token)]
