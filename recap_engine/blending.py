"""What RECAP+ does with a key's second record: the two are blended, so a key tells what usually follows it.

A step blends some twenty records. They are blended together, in arrays: one by one they would take longer than all else
that is done outside the target's pass.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recap_engine.memory import Record, Table
from recap_engine.tree import Context
from recap_engine.weighting import TEMPER

LATER = 0.4  # its part of a blend; a memory that has served for long would do better with less, a new one with more
Pair = tuple[Record, Record]  # an earlier record and a later one


def blend_into(tables: tuple[Table, Table, Table], found: Iterable[tuple[Context, Record]]) -> None:
    """Blend what was found together into the `tables` of orders 1, 2, 3; under one key, only its last record counts.

    Keys that hold the same record go on holding the same.
    """
    latest: tuple[Table, Table, Table] = {}, {}, {}
    for context, record in found:
        latest[0][context[2]] = latest[1][context[1:]] = latest[2][context] = record
    places: dict[Pair, list[tuple[Table, Any]]] = {}
    for table, new in zip(tables, latest, strict=True):
        for key, record in new.items():
            earlier = table.get(key)
            if earlier is None:
                table[key] = record
            else:
                places.setdefault((earlier, record), []).append((table, key))
    for blended, where in zip(blend_all(list(places)), places.values(), strict=True):
        for table, key in where:
            table[key] = blended


def blend(earlier: Record, later: Record) -> Record:
    """One pair alone; see `blend_all`."""
    return blend_all([(earlier, later)])[0]


def blend_all(pairs: Sequence[Pair]) -> list[Record]:
    """LATER of each pair's later record, the rest of the earlier. A blend keeps the later one's k.

    By their chances and not their probabilities, as these are what proposals are made of. A blend's probabilities are
    those that have its chances, so it reads like any record; when it was written is when the later one was.
    """
    alike: dict[tuple[int, int], list[int]] = {}  # places of pairs with as many tokens: nearly always one list
    for place, (earlier, later) in enumerate(pairs):
        alike.setdefault((len(earlier.tokens), len(later.tokens)), []).append(place)
    blended: dict[int, Record] = {}
    for places in alike.values():
        blended.update(zip(places, _blend_alike([pairs[place] for place in places]), strict=True))
    return [blended[place] for place in range(len(pairs))]


def _blend_alike(pairs: Sequence[Pair]) -> list[Record]:
    """Of B pairs whose earlier records have i tokens and whose later ones have k."""
    earlier, later = zip(*pairs, strict=True)
    old_tokens, new_tokens = (np.array([record.tokens for record in side]) for side in (earlier, later))
    old_probabilities, new_probabilities = (np.array([r.probabilities for r in side]) for side in (earlier, later))
    tempered = new_probabilities**TEMPER
    old = np.array([record.chances for record in earlier]) * (1.0 - LATER)  # [B, i]
    new = tempered * (LATER / tempered.sum(1, keepdims=True))  # [B, k]

    same = old_tokens[:, :, None] == new_tokens[:, None, :]  # [B, i, k]
    old += (same @ new[:, :, None])[:, :, 0]
    new[same.any(1)] = -1.0  # counted with the earlier record's
    sums, tokens = np.concatenate([old, new], 1), np.concatenate([old_tokens, new_tokens], 1)  # [B, i + k]
    best = np.argsort(-sums, axis=1, kind="stable")[:, : new.shape[1]]
    chances = np.take_along_axis(sums, best, 1)  # [B, k]
    chances /= chances.sum(1, keepdims=True)

    raised = chances ** (1.0 / TEMPER)
    mass = (1.0 - LATER) * old_probabilities.sum(1) + LATER * new_probabilities.sum(1)
    probabilities = raised * (mass / raised.sum(1))[:, None]
    columns = np.take_along_axis(tokens, best, 1).tolist(), probabilities.tolist(), chances.tolist()
    return [
        Record(words, parts, (1.0 - LATER) * one.entropy + LATER * two.entropy, two.written, shares)
        for (one, two), words, parts, shares in zip(pairs, *columns, strict=True)
    ]
