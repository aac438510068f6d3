"""Measurements -> ratios with intervals, as a table for people and JSON for machines. Pure functions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import mean, median

from recap_engine.bench.runner import Measurement

DRAWS = 2000
Pair = tuple[Measurement, Measurement]  # the same request under two lanes


def pairs(measurements: Sequence[Measurement], lane: str, baseline: str, family: str | None = None) -> list[Pair]:
    """The requests that both lanes ran, (lane, baseline)."""
    by = {(m.family, m.seed, m.lane): m for m in measurements if family in (None, m.family)}
    return [(m, by[m.family, m.seed, baseline]) for m in by.values() if m.lane == lane]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap 95 % percentile interval of the mean of the values (Efron, 1979), from a fixed seed."""
    rng = random.Random(0)
    found = sorted(mean(rng.choices(values, k=len(values))) for _ in range(DRAWS))
    low = int(0.025 * DRAWS)
    return found[low], found[DRAWS - 1 - low]


def speedups(measurements: Sequence[Measurement], lane: str, baseline: str, family: str | None = None) -> list[float]:
    """Per request, the baseline's decoding time over the lane's (above 1: the lane is faster)."""
    return [b.decode_s / a.decode_s for a, b in pairs(measurements, lane, baseline, family)]


def families(measurements: Sequence[Measurement]) -> list[str]:
    return list(dict.fromkeys(m.family for m in measurements))


def mean_over_families(measurements: Sequence[Measurement], lane: str, baseline: str) -> float:
    """The mean of the families' mean speedups: every family counts the same."""
    return mean(mean(speedups(measurements, lane, baseline, f)) for f in families(measurements))


def table(measurements: Sequence[Measurement]) -> str:
    """Families in rows, lanes in columns: speedup over AR in decoding, and mean accepted tokens per step."""
    names = [n for n in dict.fromkeys(m.lane for m in measurements) if n not in ("generate", "ar")]
    names.sort()
    lines = [["family", "tokens", *(f"{n}: speedup, MAT" for n in names)]]
    for family in families(measurements):
        tokens = mean(m.tokens for m in measurements if m.family == family and m.lane == "ar")
        lines.append([family, f"{tokens:.0f}", *(_cell(measurements, n, family) for n in names)])
    overall = [
        f"{mean_over_families(measurements, n, 'ar'):.2f} [{_range(speedups(measurements, n, 'ar'))}]" for n in names
    ]
    lines.append(["mean", "", *overall])
    return "\n".join("| " + " | ".join(row) + " |" for row in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def _cell(measurements: Sequence[Measurement], lane: str, family: str) -> str:
    ours = [m for m in measurements if m.family == family and m.lane == lane]
    mat = sum(m.tokens - 1 for m in ours) / max(1, sum(m.steps for m in ours))
    return f"{mean(speedups(measurements, lane, 'ar', family)):.2f}, {mat:.2f}"


def _range(values: Sequence[float]) -> str:
    return "{:.2f}, {:.2f}".format(*interval(values))


def summary(measurements: Sequence[Measurement]) -> list[str]:
    """AR against `generate` in whole time, and whether every lane gave the same ids."""
    whole = [a.total_s / b.total_s for a, b in pairs(measurements, "ar", "generate")]
    spread = f"median {median(whole):.3f}, mean {mean(whole):.3f} [{_range(whole)}]"
    others = [m for m in measurements if m.lane != "generate"]
    different = [m for m in others if not m.identical]
    lines = [
        f"AR lane's time / generate's, prefill included: {spread}",
        f"identical to generate: {len(others) - len(different)} of {len(others)} runs",
    ]
    return lines + [f"  {m.lane} differs on {m.family} {m.seed}, margin {m.margin:.2e}" for m in different]
