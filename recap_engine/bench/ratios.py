"""Measurements -> ratios with intervals. Pure functions.

A speedup is the baseline's time over a lane's on the same request (above 1: the lane is faster); a mean of speedups is
the mean of per-request ratios, every suite counting the same. DECODING leaves out the prefill, which lanes share;
WHOLE counts it, as a person waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recap_engine.bench.results import Measurement

DRAWS = 2000
MEAN = "mean"  # the row of all suites together
DECODING, WHOLE = "decode_s", "total_s"  # what is compared


@dataclass(frozen=True)
class Ratio:
    """A mean of per-request ratios, with its 95 % interval."""

    mean: float
    low: float
    high: float
    median: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def suites(measurements: Sequence[Measurement]) -> list[str]:
    return list(dict.fromkeys(m.suite for m in measurements))


def lanes(measurements: Sequence[Measurement]) -> list[str]:
    return list(dict.fromkeys(m.lane for m in measurements))


def speedups(
    measurements: Sequence[Measurement], lane: str, baseline: str, clock: str = DECODING
) -> dict[str, list[float]]:
    """Per suite, the ratio of every request that both ran; an answer of one token has no decoding to compare."""
    by = {(m.request, m.lane): m for m in measurements}
    found: dict[str, list[float]] = {}
    for m in measurements:
        other = by.get((m.request, baseline))
        if m.lane == lane and other and min(m.tokens, other.tokens) > 1:
            found.setdefault(m.suite, []).append(getattr(other, clock) / getattr(m, clock))
    return found


def ratio(*groups: Sequence[float]) -> Ratio | None:
    """Mean of the groups' means, with a bootstrap percentile interval (Efron, 1979) that draws within every group.

    The seed is fixed. None if there is nothing in the groups.
    """
    arrays = [np.asarray(group, dtype=float) for group in groups if len(group)]
    if not arrays:
        return None
    rng = np.random.default_rng(0)
    drawn = [values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1) for values in arrays]  # [DRAWS] each
    low, high = np.quantile(np.mean(drawn, axis=0), (0.025, 0.975))
    center = np.mean([values.mean() for values in arrays])
    return Ratio(float(center), float(low), float(high), float(np.median(np.concatenate(arrays))))


def mean_accepted(measurements: Sequence[Measurement]) -> float:
    """Tokens after the first, which the prefill gave, over steps."""
    return sum(m.tokens - 1 for m in measurements) / max(1, sum(m.steps for m in measurements))


def rows(measurements: Sequence[Measurement], baseline: str = "ar") -> list[dict[str, Any]]:
    """One row per suite and lane, then one per lane over all suites: what tables, CSV file and figures show."""
    found = []
    for suite in (*suites(measurements), None):
        within = [m for m in measurements if suite in (None, m.suite)]
        for lane in lanes(measurements):
            own = [m for m in within if m.lane == lane]
            seconds = sum(m.decode_s for m in own)
            row: dict[str, Any] = {"suite": suite or MEAN, "lane": lane, "requests": len(own)}
            row["tokens"] = sum(m.tokens for m in own) / max(1, len(own))
            row["mat"] = mean_accepted(own)
            for prefix, clock in (("decode", DECODING), ("whole", WHOLE)):
                values = ratio(*speedups(within, lane, baseline, clock).values())
                for part in ("mean", "low", "high", "median"):
                    row[f"{prefix}_{part}"] = getattr(values, part, None)
            row["tokens_per_s"] = sum(m.tokens - 1 for m in own) / seconds if seconds else None
            row["identical"] = sum(m.identical for m in own)
            found.append(row)
    return found


def headlines(measurements: Sequence[Measurement]) -> dict[str, Ratio]:
    """The ratios people ask of a run, by name; those whose lanes did not run are left out."""
    asked: dict[str, tuple[str, str, str]] = {}
    for name in (lane for lane in lanes(measurements) if lane.startswith("recap")):
        for other in ("ar", "tr", "tr-best", "tr-same", "prompt-lookup", "oracle"):
            asked[f"speed of {name} / {other}, decoding"] = name, other, DECODING
        asked[f"speed of {name} / prompt-lookup, whole request"] = name, "prompt-lookup", WHOLE
    asked["time of ar / generate, whole request"] = "generate", "ar", WHOLE
    found = {title: ratio(*speedups(measurements, *pair).values()) for title, pair in asked.items()}
    return {title: value for title, value in found.items() if value}
