"""Two runs side by side: under other settings, on another machine, or before and after a change."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from recap_engine.bench.ratios import lanes, ratio, speedups, suites
from recap_engine.bench.report import Table, aligned
from recap_engine.bench.results import Folder, Measurement

Groups = dict[str, list[float]]  # ratios, per suite


def main(arguments: Sequence[str]) -> int:
    """Print two runs side by side, and where their settings differ."""
    parser = argparse.ArgumentParser("python -m recap_engine.bench compare", description=__doc__)
    parser.add_argument("a", type=Path, help="folder of a run")
    parser.add_argument("b", type=Path, help="folder of another")
    parser.add_argument("--lane", default="recap", help="the lane to show suite by suite")
    options = parser.parse_args(arguments)
    (first, before), (second, after) = Folder(options.a).read(), Folder(options.b).read()
    print(aligned(by_lane(before, after)))
    print()
    print(aligned(by_suite(before, after, options.lane)))
    print()
    print("\n".join(f"- {line}" for line in first.changes(second)) or "- both were asked for the same")
    return 0


def by_lane(first: Sequence[Measurement], second: Sequence[Measurement]) -> Table:
    """Lanes in rows: both speedups over AR in decoding, and the second's speed over the first's on shared requests."""
    table = [["lane", "A: speedup", "B: speedup", "speed of B / A", "shared requests"]]
    for lane in dict.fromkeys([*lanes(first), *lanes(second)]):
        runs = (("A", first), ("B", second))
        marked = [replace(m, lane=run) for run, measurements in runs for m in measurements if m.lane == lane]
        shared = speedups(marked, "B", "A")
        over_ar = (_cell(speedups(measurements, lane, "ar")) for _, measurements in runs)
        table.append([lane, *over_ar, _cell(shared), str(sum(map(len, shared.values())))])
    return table


def by_suite(first: Sequence[Measurement], second: Sequence[Measurement], lane: str) -> Table:
    """Suites in rows: one lane's speedup over AR in both."""
    table = [["suite", f"A: {lane}", f"B: {lane}"]]
    found = [speedups(measurements, lane, "ar") for measurements in (first, second)]
    for suite in dict.fromkeys([*suites(first), *suites(second)]):
        table.append([suite, *(_cell({suite: own.get(suite, [])}) for own in found)])
    return table


def _cell(groups: Groups) -> str:
    return str(ratio(*groups.values()) or "–")
