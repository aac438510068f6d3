"""What RECAP costs beside the passes it saves: recording a trace, long answers, memory, work outside the target.

`python -m recap_engine.bench costs --out FOLDER` prints a table and writes costs.json, which `check` reads.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from recap_engine.bench import options
from recap_engine.bench.ratios import ratio
from recap_engine.bench.report import aligned
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.request import Request
from recap_engine.settings import Settings
from recap_engine.target import Target
from recap_engine.trace import LaneTrace

FILE = "costs.json"
EARLY, LATE = 100, 1000  # tokens of an answer: where the step's growth is looked at
AROUND = 50  # tokens before and after
REPEATS = 3  # of recorded against unrecorded runs
NODES = 16  # of every tree while growth is measured: it is the same tree, early and late
Figure = dict[str, float]  # "value", and "low" and "high" if it has an interval


class Endless(Target):
    """A target whose answers end at the limit alone."""

    @property
    def stop_tokens(self) -> frozenset[int]:
        return frozenset()


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and write to `--out`."""
    parser = options.parser(" costs", __doc__, count=2)
    parser.add_argument("--lane", default="recap", help="the lane whose costs these are (default recap)")
    parser.add_argument("--out", help="folder for costs.json")
    parser.add_argument("--peak", metavar="LANE", help=argparse.SUPPRESS)  # one lane's memory, for a process of its own
    asked = parser.parse_args(arguments)
    engine = options.engine(asked)
    requests = _requests(engine, asked)
    settings = Settings(max_new_tokens=asked.max_new_tokens, record=False)
    if asked.peak:
        print(peak_mb(engine, requests, asked.peak, settings))
        return 0
    figures: dict[str, Figure] = {}
    for name, figure in measured(engine, requests, asked.lane, settings):
        print(f"measured {name}", file=sys.stderr)
        figures[name] = figure
    figures["memory"] = {"value": memory_over_ar(arguments, asked.lane)}
    print(aligned(table(figures)))
    if asked.out:
        folder = Path(asked.out)
        folder.mkdir(parents=True, exist_ok=True)
        made = {"model": engine.model_name, "lane": asked.lane, "machine": engine.machine, "figures": figures}
        (folder / FILE).write_text(json.dumps(made, indent=1))
    return 0


def read(folder: Path) -> dict[str, Any] | None:
    """What `main` wrote there; None if nothing. Raises RecapError for a file of another kind."""
    try:
        made = json.loads((folder / FILE).read_text())
        known = isinstance(made["model"], str) and all(isinstance(f["value"], float) for f in made["figures"].values())
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise RecapError(f"The file {FILE} in {folder} was not written by this bench.")
    return made


def measured(
    engine: Engine, requests: Sequence[Request], lane: str, settings: Settings
) -> Iterator[tuple[str, Figure]]:
    """All figures that one process can measure, by name."""
    yield from recording(engine, requests, lane, settings).items()
    yield "outside", outside(engine, requests, lane, settings)
    yield "growth", {"value": growth(engine, requests[0], lane)}


def table(figures: dict[str, Figure]) -> list[list[str]]:
    words = {
        "recording": "recording a trace, on the lane's clock, %",
        "recording_waited": "recording a trace, as one waits for it, %",
        "outside": "draft, accept and update of a step's time, %",
        "growth": f"step at {LATE} tokens over step at {EARLY}, beyond AR's own growth",
        "memory": "resident memory over AR's, MB",
    }
    cells = [["what", "measured", "95 % interval"]]
    for name, figure in figures.items():
        interval = f"{figure['low']:.3g} to {figure['high']:.3g}" if "low" in figure else "–"
        cells.append([words[name], f"{figure['value']:.3g}", interval])
    return cells


def recording(engine: Engine, requests: Sequence[Request], lane: str, settings: Settings) -> dict[str, Figure]:
    """How much longer a recorded run takes than an unrecorded one, in %: by the engine's own clock, and by the wall's.

    Both start with memories of their own and take turns, so that a slow moment hits both; medians of their ratios.
    """
    by_clock: list[float] = []
    by_wall: list[float] = []
    for number in range(REPEATS):
        engines = {record: engine.apart() for record in (False, True)}
        for place, request in enumerate(requests):
            times: dict[bool, tuple[float, float]] = {}
            for record in sorted(engines, reverse=bool((number + place) % 2)):
                start = perf_counter()
                trace = engines[record].answer(request, lane, replace(settings, record=record))
                times[record] = trace.seed_s + trace.decode_s, perf_counter() - start
            if len(trace.tokens) > 1:
                by_clock.append(times[True][0] / times[False][0])
                by_wall.append(times[True][1] / times[False][1])
    return {"recording": _percent_more(by_clock), "recording_waited": _percent_more(by_wall)}


def _percent_more(ratios: Sequence[float]) -> Figure:
    """The median, and the interval of the mean, as percent over 1."""
    found = ratio(ratios)
    if found is None:
        raise RecapError("Every answer was one token long, so there is no step to measure; ask longer questions.")
    return {
        name: 100 * (value - 1) for name, value in (("value", found.median), ("low", found.low), ("high", found.high))
    }


def outside(engine: Engine, requests: Sequence[Request], lane: str, settings: Settings) -> Figure:
    """The part of a step's time that is not the target's pass, in %: the median of the requests' sums."""
    own = engine.apart()
    shares = []
    for request in requests:
        steps = own.answer(request, lane, settings).steps
        beside = sum(step.draft_s + step.accept_s + step.update_s for step in steps)
        whole = beside + sum(step.verify_s for step in steps)
        shares += [100 * beside / whole] if steps else []
    return {"value": median(shares), "low": min(shares), "high": max(shares)}


def growth(engine: Engine, request: Request, lane: str) -> float:
    """A step at LATE tokens of answer over one at EARLY, over the same of AR's; trees of NODES nodes.

    Raises RecapError if the model has no room for so long an answer.
    """
    endless = Engine(Endless(engine.target.model, engine.target.family), engine.processor, engine.model_name)
    endless.step_cost, endless.target.threads = engine.step_cost, engine.target.threads
    settings = Settings(max_new_tokens=LATE + AROUND, budget=NODES, floor=0.0, record=False)
    of_lane, of_ar = (_growth(endless.answer(request, name, settings)) for name in (lane, "ar"))
    return of_lane / of_ar


def _growth(trace: LaneTrace) -> float:
    late, early = (_step_s(trace, at) for at in (LATE, EARLY))
    return late / early


def _step_s(trace: LaneTrace, at: int) -> float:
    """Seconds of a step around the answer's token `at`: the median."""
    near = [step for step in trace.steps if abs(step.root_position - at) <= AROUND]
    return median(step.draft_s + step.verify_s + step.accept_s + step.update_s for step in near)


def memory_over_ar(arguments: Sequence[str], lane: str) -> float:
    """MB that a lane's process holds at its peak beyond one that decodes plainly."""
    held = []
    for name in (lane, "ar"):
        command = [sys.executable, "-m", "recap_engine.bench", "costs", *arguments, "--peak", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RecapError(f"The process that measures memory failed: {done.stderr.strip().splitlines()[-1]}")
        held.append(float(done.stdout.split()[-1]))
    return held[0] - held[1]


def peak_mb(engine: Engine, requests: Sequence[Request], lane: str, settings: Settings) -> float:
    """The most memory this process held at once while the lane answered; loading the model does not count on Linux."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")  # begin a new peak, see proc(5)
    for request in requests:
        engine.answer(request, lane, settings)
    if reset.exists():
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource  # not on every system

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _requests(engine: Engine, asked: argparse.Namespace) -> list[Request]:
    """The first turns of the cases, prefilled and run once, so that no later clock meets a first pass."""
    cases = [case for suite in options.suites(asked) for case in suite.cases][: asked.limit]
    requests = [engine.prepare(case.questions[0], case.picture()) for case in cases]
    warm = engine.apart() if not asked.peak else None
    for request in requests:
        request.prefill = engine.target.prefill(request.inputs)
    if warm:
        warm.answer(requests[0], asked.lane, Settings(max_new_tokens=asked.max_new_tokens))
    return requests
