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
LATER_TO_KEPT = LATER / KEPT
SURE = 0.8  # probability of the best token from which a record is called sure of it
UNTEMPER = 1.0 / TEMPER


def put(found: Iterable[tuple[Context, Record]], one: Table, two: Table, three: Table) -> None:
    """Each record under its three keys, into the tables of orders 1, 2, 3. The last under a key stays."""
    for context, record in found:
        one[context[2]] = two[context[1:]] = three[context] = record


def latest(found: Iterable[tuple[Context, Record]]) -> tuple[Table, Table, Table]:
    """The last record under every key of orders 1, 2, 3, of what was found together."""
    tables: tuple[Table, Table, Table] = {}, {}, {}
    put(found, *tables)
    return tables


def said(found: Table) -> Table:
    """Of what was found, the records of accepted positions."""
    return {key: record for key, record in found.items() if record.written[2]}


def blend_into(*joined: tuple[Table, Table]) -> None:
    """Blend the second table of each pair into the first. Keys that hold the same record go on holding the same."""
    once = cache(blend) if len(joined) > 1 else blend
    for table, new in joined:
        held = table.get
        for key, record in new.items():
            earlier = held(key)
            table[key] = record if earlier is None else once(earlier, record)


def blend(earlier: Record, later: Record) -> Record:
    """LATER of the later record, the rest of the earlier: of both their tokens the best, as many as the longer one has.

    By their chances and not their probabilities, as these are what proposals are made of. A blend's probabilities are
    those that have its chances, so it reads like any record; when it was written is when the later one was. Of two
    that are sure of the same token the later one stands for both: a third of all pairs, and nothing is lost.
    """
    if earlier.tokens[0] == later.tokens[0] and earlier.probabilities[0] >= SURE <= later.probabilities[0]:
        return later
    sums = dict(zip(earlier.tokens, earlier.chances))  # over KEPT
    so_far = sums.get
    for token, chance in zip(later.tokens, later.chances):
        sums[token] = so_far(token, 0.0) + LATER_TO_KEPT * chance
    tokens = sorted(sums, key=so_far, reverse=True)
    del tokens[max(len(earlier.tokens), len(later.tokens)) :]
    best = [*map(so_far, tokens)]
    total = sum(best)
    raised = [each**UNTEMPER for each in best]
    share = (KEPT * sum(earlier.probabilities) + LATER * sum(later.probabilities)) / sum(raised)
    entropy = KEPT * earlier.entropy + LATER * later.entropy
    return Record(tokens, [share * each for each in raised], entropy, later.written, [each / total for each in best])
