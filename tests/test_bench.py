"""The bench's arithmetic: ratios, intervals and tables from measurements made by hand."""

from __future__ import annotations

import pytest

from recap_engine.bench.report import interval, mean_over_families, speedups, summary, table
from recap_engine.bench.runner import Measurement


def measurement(
    family: str, seed: int, lane: str, decode_s: float, steps: int = 10, identical: bool = True
) -> Measurement:
    return Measurement(family, seed, lane, 21, steps, 0.1, decode_s, identical, None if identical else 1e-6)


@pytest.fixture
def measurements() -> list[Measurement]:
    rows = []
    for family, ar, recap in (("table", 4.0, 1.0), ("chart", 2.0, 1.0)):
        for seed in (1, 2):
            rows += [
                measurement(family, seed, "ar", ar, 20),
                measurement(family, seed, "recap", recap),
                Measurement(family, seed, "generate", 21, 20, 0.0, ar + 0.3, True),
            ]
    return rows


def test_speedup_is_the_baseline_over_the_lane_on_the_same_request(measurements):
    assert speedups(measurements, "recap", "ar", "table") == [4.0, 4.0]


def test_every_family_counts_the_same(measurements):
    extra = [measurement("chart", 3, "ar", 2.0, 20), measurement("chart", 3, "recap", 1.0)]
    assert mean_over_families(measurements + extra, "recap", "ar") == 3.0


def test_interval_holds_the_mean_and_shrinks_to_a_point_without_spread():
    low, high = interval([1.0, 2.0, 3.0, 4.0])
    assert low < 2.5 < high
    assert interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_table_has_a_row_a_family_and_one_for_the_mean(measurements):
    lines = table(measurements).splitlines()
    assert len(lines) == 2 + 2 + 1
    assert "4.00, 2.00" in lines[2] and "3.00" in lines[-1]


def test_summary_tells_every_difference_with_its_margin(measurements):
    assert "identical to generate: 8 of 8 runs" in summary(measurements)[1]
    wrong = [*measurements, measurement("table", 9, "recap", 1.0, identical=False)]
    assert summary(wrong)[-1] == "  recap differs on table 9, margin 1.00e-06"


def test_ar_is_compared_with_generate_in_whole_time(measurements):
    assert "median 0.933" in summary(measurements)[0]  # (4.1 / 4.3 + 2.1 / 2.3) / 2
