"""Are the figures that this project promises reached? A table of what is promised, what was measured, and the verdict.

`python -m recap_engine.bench check FOLDER [FOLDER ...]` reads what the bench and `costs` left in folders: a hot run on
the drawn suites, one with `--memory cold`, one of a text model on a file of questions, and the costs of both models.
Whatever none of them can decide is told as not measured. The exit status is 1 if anything is missed.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recap_engine.bench.costs import read as read_costs
from recap_engine.bench.lanes import LANES
from recap_engine.bench.ratios import WHOLE, Ratio, ratio, speedups
from recap_engine.bench.report import Table, aligned
from recap_engine.bench.results import Folder, Measurement, Setting
from recap_engine.scenes import FAMILIES

MET, MISSED, REPORTED, UNKNOWN = "met", "missed", "reported", "not measured"
DRAFTERS = ("recap+", "recap")
MARGIN = 0.98  # of AR's speed, below which no suite may fall
EMBEDDED_NAME = "embedded model"
TEXT_MODEL = "a text model"  # while none is known by its name
COSTS: dict[str, tuple[str, str, float, float]] = {
    # what `costs` measures: in words, its unit, and the most it may be with the embedded model and with a larger one
    "recording": ("recording a trace, on the lane's clock", " %", 3.0, 3.0),
    "outside": ("share of a step outside the target's pass", " %", 5.0, 2.0),
    "growth": ("step at 1,000 tokens over step at 100, beyond AR's own growth", "", 1.3, 1.3),
    "memory": ("resident memory over AR's", " MB", 150.0, 150.0),
}
Run = tuple[Setting, Sequence[Measurement]]


@dataclass(frozen=True)
class Line:
    """One promise."""

    what: str
    wanted: str
    measured: str = "–"
    verdict: str = UNKNOWN


def main(arguments: Sequence[str]) -> int:
    """Print the table; returns the exit status. Raises RecapError for a folder that holds neither a run nor costs."""
    parser = argparse.ArgumentParser("python -m recap_engine.bench check", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a run of the bench, or of costs")
    runs: list[Run] = []
    costs: list[dict[str, Any]] = []
    for path in parser.parse_args(arguments).folders:
        made = read_costs(path)
        costs += [made] if made else []
        if not made or Folder(path).summary.exists():
            runs.append(Folder(path).read())
    return tell(runs, costs)


def tell(runs: Sequence[Run], costs: Sequence[dict[str, Any]]) -> int:
    """Print the table of these runs and costs; 1 if a line is missed, else 0."""
    found = list(lines(runs, costs))
    print(aligned(table(found)))
    return int(any(line.verdict == MISSED for line in found))


def table(found: Sequence[Line]) -> Table:
    return [["what", "wanted", "measured", "verdict"], *([x.what, x.wanted, x.measured, x.verdict] for x in found)]


def lines(runs: Sequence[Run], costs: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """All promises. The embedded model's runs on drawn suites decide most, a text model's runs on a file the rest."""
    drawn = [run for run in runs if _model(run) == EMBEDDED_NAME and {m.suite for m in run[1]} >= set(FAMILIES)]
    asked = [run for run in runs if _model(run) != EMBEDDED_NAME and run[0].options.get("data")]
    hot = _last(drawn, "hot")
    file = f"{_model(asked[-1])} on a file" if asked else f"{TEXT_MODEL} on a file"
    for where, found, factors in (
        ("seven suites", hot, {"ar": 2.0, "tr-best": 1.15, "prompt-lookup": 1.3}),
        (file, _last(asked, "hot"), {"ar": 1.66, "tr-best": 1.1}),
    ):
        for other, factor in factors.items():
            yield _speed(where, found, other, factor)
    yield _time_of_ar(hot)
    yield _share_of_oracle(hot)
    for where, own in (("seven suites", drawn), (file, asked)):
        for memory in ("hot", "cold"):
            yield _slowest_suite(f"{memory} memories, {where}", _last(own, memory))
    yield _oracle_bound(runs)
    yield _identical(runs)
    known = {made["model"]: made["figures"] for made in costs}
    for model in (EMBEDDED_NAME, *([name for name in known if name != EMBEDDED_NAME] or [TEXT_MODEL])):
        for name, (what, unit, *most) in COSTS.items():
            yield _at_most(f"{what}, {model}", known.get(model, {}).get(name), most[model != EMBEDDED_NAME], unit)


def _model(run: Run) -> str:
    return str(run[0].options.get("model", EMBEDDED_NAME))


def _last(runs: Sequence[Run], memory: str) -> Sequence[Measurement]:
    """The measurements of the last of these runs with hot or with cold memories; nothing if there is none."""
    return next((found for setting, found in reversed(runs) if setting.options.get("memory", "hot") == memory), ())


def _speed(where: str, found: Sequence[Measurement], other: str, factor: float) -> Line:
    """RECAP's speed over another lane's; of two kinds of RECAP the better one counts."""
    name, value = _best(found, other)
    verdict = UNKNOWN if value is None else _verdict(value.mean >= factor)
    return Line(f"{name} / {other}, {where}", f">= {factor:g}", _shown(value), verdict)


def _best(found: Sequence[Measurement], other: str) -> tuple[str, Ratio | None]:
    speeds = {name: ratio(*speedups(found, name, other).values()) for name in DRAFTERS}
    known = {name: value for name, value in speeds.items() if value}
    name = max(known, key=lambda name: known[name].mean, default=DRAFTERS[-1])
    return name, known.get(name)


def _time_of_ar(found: Sequence[Measurement]) -> Line:
    value = ratio(*speedups(found, "generate", "ar", WHOLE).values())
    verdict = UNKNOWN if value is None else _verdict(value.mean <= 1.0)
    return Line("time of ar / generate, whole request", "<= 1", _shown(value), verdict)


def _share_of_oracle(found: Sequence[Measurement]) -> Line:
    """How much of the speed that knowing the answer would give."""
    name, value = _best(found, "oracle")
    return Line(f"{name} / oracle, seven suites", "report", _shown(value), REPORTED if value else UNKNOWN)


def _slowest_suite(where: str, found: Sequence[Measurement]) -> Line:
    """The suite where RECAP does worst against plain decoding."""
    name, _ = _best(found, "ar")
    suites = {suite: ratio(values) for suite, values in speedups(found, name, "ar").items()}
    known = {suite: value for suite, value in suites.items() if value}
    what = f"{name} / ar, its slowest suite, {where}"
    if not known:
        return Line(what, f">= {MARGIN}")
    suite, value = min(known.items(), key=lambda item: item[1].mean)
    return Line(what, f">= {MARGIN}", f"{value} ({suite})", _verdict(value.mean >= MARGIN))


def _oracle_bound(runs: Sequence[Run]) -> Line:
    """A drafter that knows the answer needs the fewest passes; a lane that needs fewer points to a mistake here."""
    compared, beaten = 0, []
    for _, found in runs:
        bound = {m.request: m for m in found if m.lane == "oracle"}
        for m in found:
            best = bound.get(m.request)
            if best and m.lane in LANES and m.lane != "oracle" and m.identical and best.identical:
                compared += 1
                beaten += [m.lane] if m.steps < best.steps else []
    who = f" ({', '.join(sorted(set(beaten)))})" if beaten else ""
    told = f"{len(beaten)} of {compared}{who}"
    return Line("runs with fewer passes than the oracle", "0", told if compared else "–", _known(compared, not beaten))


def _identical(runs: Sequence[Run]) -> Line:
    """In float32 no answer may differ. In half precision a near tie can flip: then the margins are told instead."""
    compared = [m for _, found in runs for m in found]
    differing = [m for m in compared if not m.identical]
    in_full = [m for setting, found in runs if setting.machine.get("dtype") == "float32" for m in found]
    told = f"{len(compared) - len(differing)} of {len(compared)}"
    if differing:
        told += f", largest margin {max(m.margin or 0.0 for m in differing):.1e}"
    verdict = _known(len(compared), not differing)
    if differing and all(m.identical for m in in_full):
        verdict = REPORTED
    return Line("answers identical to the first lane's", "all", told if compared else "–", verdict)


def _at_most(what: str, value: dict[str, float] | None, limit: float, unit: str) -> Line:
    """A figure of the costs, with its interval if it has one."""
    if not value:
        return Line(what, f"<= {limit:g}{unit}")
    told = f"{value['value']:.3g}{unit}"
    if "low" in value:
        told += f" [{value['low']:.3g}, {value['high']:.3g}]"
    return Line(what, f"<= {limit:g}{unit}", told, _verdict(value["value"] <= limit))


def _shown(value: Ratio | None) -> str:
    return str(value or "–")


def _verdict(reached: bool) -> str:
    return MET if reached else MISSED


def _known(measured: int, reached: bool) -> str:
    return _verdict(reached) if measured else UNKNOWN
