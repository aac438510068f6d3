"""Entropy-confidence weighting: several records of the target's own predictions become one ranked list of candidates.

The paper's abstract names the weighting and gives no formula; this one is our choice. An order n with record r_n has

    confidence  c_n = p_top * (1 - H_n / ln|V|)        weight  w_n = LENGTH[n] * c_n
    score(y)    = sum_n share_n(y)                     share_n(y) = w_n p_n(y) / sum_m w_m

so a sharp record outweighs a vague one, and of two equally sharp ones the longer key counts more. The alternatives
below change only the weights and exist for comparison.
"""

from collections.abc import Callable
from operator import itemgetter

from recap_engine.memory import Recalled
from recap_engine.tree import Proposal

LENGTH = (1.0, 2.0, 4.0)  # how much more a key of one, two, three tokens is trusted at equal confidence
NO_WEIGHTS = (0.0, 0.0, 0.0)
Weigh = Callable[[Recalled], list[float]]  # the three records -> three weights, not negative, 0 where there is none


def entropy_confidence(recalled: Recalled) -> list[float]:
    """Sure records and long keys weigh more."""
    return [
        0.0 if record is None else length * record.probabilities[0] * (1.0 - record.entropy)
        for length, record in zip(LENGTH, recalled, strict=True)
    ]


def uniform(recalled: Recalled) -> list[float]:
    """Every order that has a record weighs the same."""
    return [0.0 if record is None else 1.0 for record in recalled]


def longest_match(recalled: Recalled) -> list[float]:
    """Only the longest key that has a record counts, as in prompt-lookup decoding."""
    longest = max((order for order, record in enumerate(recalled) if record is not None), default=-1)
    return [1.0 if order == longest else 0.0 for order in range(3)]


def last_token(recalled: Recalled) -> list[float]:
    """Only the one-token key counts, as in Token Recycling."""
    return [0.0 if recalled[0] is None else 1.0, 0.0, 0.0]


WEIGHTINGS: dict[str, Weigh] = {
    "entropy-confidence": entropy_confidence,
    "uniform": uniform,
    "longest-match": longest_match,
    "last-token": last_token,
}


def fuse(recalled: Recalled, weigh: Weigh) -> Proposal:
    """Candidates by falling fused probability. Pure."""
    weights = weigh(recalled)
    total = sum(weights)
    if total <= 0.0:
        return Proposal([], recalled, NO_WEIGHTS)
    one, two, three = (weight / total for weight in weights)
    distinct = {id(record): record for record, weight in zip(recalled, weights, strict=True) if weight > 0.0}
    if len(distinct) == 1:  # often one record is the latest under all its keys
        (record,) = distinct.values()
        candidates = list(zip(record.tokens, record.probabilities, strict=True))
    else:
        scores: dict[int, float] = {}
        for record, weight in zip(recalled, (one, two, three), strict=True):
            if weight > 0.0:
                for token, probability in zip(record.tokens, record.probabilities, strict=True):
                    scores[token] = scores.get(token, 0.0) + weight * probability
        candidates = sorted(scores.items(), key=itemgetter(1), reverse=True)
    return Proposal(candidates, recalled, (one, two, three))


def shares(proposal: Proposal, token: int) -> tuple[float, float, float]:
    """What orders 1, 2 and 3 gave to the fused probability of `token`; they sum to it."""
    one, two, three = (
        weight * record.probabilities[record.tokens.index(token)] if weight and token in record.tokens else 0.0
        for record, weight in zip(proposal.recalled, proposal.weights, strict=True)
    )
    return one, two, three
