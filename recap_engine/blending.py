"""What becomes of a key's second record in a memory that persists: the two are blended.

So a key tells what usually follows it, under all the pictures it was met with, and not only what followed last time.
The abstract of RECAP doesn't say what becomes of the earlier record; of what was tried this won, see the ablation.

RECAP blends some five pairs of records a step and RECAP+ ten, a third of what they do outside the target's pass. Arrays
would not make it quicker: between two passes a processor has forgotten their code, and meets it cold.
"""

from collections.abc import Iterable
from functools import cache

from recap_engine.memory import Record, Table
from recap_engine.tree import Context
from recap_engine.weighting import TEMPER

LATER = 0.4  # its part of a blend; a memory that has served for long would do better with less, a new one with more
KEPT = 1.0 - LATER  # and the earlier one's
SURE = 0.8  # probability of the best token from which a record is called sure of it
UNTEMPER = 1.0 / TEMPER


def latest(found: Iterable[tuple[Context, Record]]) -> tuple[Table, Table, Table]:
    """The last record under every key of orders 1, 2, 3, of what was found together."""
    one: Table = {}
    two: Table = {}
    three: Table = {}
    for context, record in found:
        one[context[2]] = two[context[1:]] = three[context] = record
    return one, two, three


def said(found: Table) -> Table:
    """Of what was found, the records of accepted positions."""
    return {key: record for key, record in found.items() if record.written[2]}


def blend_into(*joined: tuple[Table, Table]) -> None:
    """Blend the second table of each pair into the first. Keys that hold the same record go on holding the same."""
    once = cache(blend)
    for table, new in joined:
        for key, record in new.items():
            earlier = table.get(key)
            table[key] = record if earlier is None else once(earlier, record)


def blend(earlier: Record, later: Record) -> Record:
    """LATER of the later record, the rest of the earlier: of both their tokens the best, as many as the longer one has.

    By their chances and not their probabilities, as these are what proposals are made of. A blend's probabilities are
    those that have its chances, so it reads like any record; when it was written is when the later one was. Of two
    that are sure of the same token the later one stands for both: a third of all pairs, and nothing is lost.
    """
    if earlier.tokens[0] == later.tokens[0] and min(earlier.probabilities[0], later.probabilities[0]) >= SURE:
        return later
    sums = {token: KEPT * chance for token, chance in zip(earlier.tokens, earlier.chances)}
    so_far = sums.get
    for token, chance in zip(later.tokens, later.chances):
        sums[token] = so_far(token, 0.0) + LATER * chance
    most = max(len(earlier.tokens), len(later.tokens))
    tokens = sorted(sums, key=sums.__getitem__, reverse=True)[:most]
    best = [sums[token] for token in tokens]
    total = sum(best)
    raised = [each**UNTEMPER for each in best]
    share = (KEPT * sum(earlier.probabilities) + LATER * sum(later.probabilities)) / sum(raised)
    entropy = KEPT * earlier.entropy + LATER * later.entropy
    return Record(tokens, [share * each for each in raised], entropy, later.written, [each / total for each in best])
