"""What RECAP costs beside the passes it saves: recording a trace, long answers, memory, work outside the target.

`python -m recap_engine.bench costs --out FOLDER` prints a table and writes costs.json, which `check` reads. What is
compared takes turns, so that a slow moment hits both; figures are medians with a 95 % bootstrap interval.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from recap_engine.bench import options
from recap_engine.bench.ratios import DRAWS
from recap_engine.bench.report import aligned
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.models.packing import PackedLinear
from recap_engine.request import Request
from recap_engine.settings import Settings
from recap_engine.stepcost import CONTEXT, comb
from recap_engine.target import Reads, Target
from recap_engine.trace import StepTrace

FILE = "costs.json"
EARLY, LATE = 100, 1000  # tokens of an answer: where the step's growth is looked at
AROUND = 50  # tokens before and after
REPEATS = 3  # of recorded against unrecorded runs, and of processes whose memory is looked at
ROUNDS = 30  # of passes with packed layers against unpacked ones
ROWS = (1, 9)  # of those passes: one token, and it with a tree of eight nodes
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
    figures["memory"] = memory_over_ar(arguments, asked.lane)
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
    yield "growth", growth(engine, requests[0], lane)
    yield from packing(engine).items()


def table(figures: dict[str, Figure]) -> list[list[str]]:
    words = {
        "recording": "recording a trace, on the lane's clock, %",
        "recording_waited": "recording a trace, as one waits for it, %",
        "outside": "draft, accept and update of a step's time, %",
        "growth": f"step at {LATE} tokens over step at {EARLY}, beyond AR's own growth",
        **{f"packing_{rows}": f"speed of packed layers over unpacked, rows in a pass: {rows}" for rows in ROWS},
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
    found = {"recording": middle(by_clock), "recording_waited": middle(by_wall)}
    return {name: {part: 100 * (value - 1) for part, value in figure.items()} for name, figure in found.items()}


def middle(values: Sequence[float], others: Sequence[float] = (1.0,)) -> Figure:
    """The median of `values` over that of `others`, with its 95 % bootstrap interval. Raises RecapError for no values.

    The seed is fixed.
    """
    if not values or not others:
        raise RecapError("Every answer was so short that there is no step to measure; ask longer questions.")
    rng = np.random.default_rng(0)
    medians = (np.median(rng.choice(group, (DRAWS, len(group))), axis=1) for group in (values, others))
    low, high = np.quantile(np.divide(*medians), (0.025, 0.975))
    return {"value": float(np.median(values) / np.median(others)), "low": float(low), "high": float(high)}


def outside(engine: Engine, requests: Sequence[Request], lane: str, settings: Settings) -> Figure:
    """The part of a step's time that is not the target's pass, in %, of each request's steps together."""
    own = engine.apart()
    shares = []
    for request in requests:
        steps = own.answer(request, lane, settings).steps
        beside = sum(step.draft_s + step.accept_s + step.update_s for step in steps)
        whole = beside + sum(step.verify_s for step in steps)
        shares += [100 * beside / whole] if steps else []
    return middle(shares)


def growth(engine: Engine, request: Request, lane: str) -> Figure:
    """A step at LATE tokens of answer over one at EARLY, each over AR's at the same place; trees of NODES nodes.

    The lane and AR say the same answer side by side, whoever is behind taking the next step, so a step is compared with
    one that AR took in the same moment. Raises RecapError if the model has no room for so long an answer.
    """
    endless = Engine(Endless(engine.target.model, engine.target.family), engine.processor, engine.model_name)
    endless.target.threads = engine.target.threads
    settings = Settings(max_new_tokens=LATE + AROUND, budget=NODES, floor=0.0, record=False)
    runs = {name: endless.run(request, name, settings) for name in (lane, "ar")}
    said = dict.fromkeys(runs, 0)
    latest: dict[str, float] = {}
    ratios: dict[int, list[float]] = {EARLY: [], LATE: []}
    while runs:
        name = min(runs, key=said.__getitem__)
        progress = next(runs[name])
        said[name] = progress.n_tokens
        if progress.step:
            latest[name] = _step_s(progress.step)
            near = [at for at in ratios if abs(progress.step.root_position - at) <= AROUND]
            if name == lane and near and "ar" in latest:
                ratios[near[0]].append(latest[lane] / latest["ar"])
        if progress.done:
            del runs[name]
    return middle(ratios[LATE], ratios[EARLY])


def _step_s(step: StepTrace) -> float:
    return step.draft_s + step.verify_s + step.accept_s + step.update_s


def packing(engine: Engine) -> dict[str, Figure]:
    """How many times as fast passes are with packed layers as with the same weights unpacked; nothing without such."""
    target = engine.target
    places = [
        (parent, name, layer, unpacked(layer))
        for parent in target.model.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, PackedLinear)
    ]
    if not places:
        return {}
    trees = {rows: comb(rows - 1) for rows in ROWS}
    buffer = target.open(target.prefill({"input_ids": torch.zeros(1, CONTEXT, dtype=torch.long)}), 1, max(ROWS) - 1)
    seconds: dict[tuple[int, bool], list[float]] = {(rows, plain): [] for rows in ROWS for plain in (True, False)}
    for _ in range(ROUNDS):
        for plain in (True, False):  # the packed ones come last, and stay
            for parent, name, *layers in places:
                setattr(parent, name, layers[plain])
            target.verify(buffer, trees[max(ROWS)], Reads())  # brings the weights near
            for rows, tree in trees.items():
                start = perf_counter()
                target.verify(buffer, tree, Reads())
                seconds[rows, plain].append(perf_counter() - start)
    return {
        f"packing_{rows}": middle([a / b for a, b in zip(seconds[rows, True], seconds[rows, False], strict=True)])
        for rows in ROWS
    }


def unpacked(layer: PackedLinear) -> nn.Linear:
    """An ordinary layer with the same weights."""
    bias = torch.ops.quantized.linear_unpack_fp16(layer.packed)[1]
    plain = nn.Linear(layer.in_features, layer.out_features, bias=bias is not None)
    plain.weight.data = layer.weight
    if bias is not None:
        plain.bias.data = bias * layer.unscale
    return plain.eval()


def memory_over_ar(arguments: Sequence[str], lane: str) -> Figure:
    """MB that a lane's process holds at its peak beyond one that decodes plainly."""
    return middle([_peak_apart(arguments, lane) - _peak_apart(arguments, "ar") for _ in range(REPEATS)])


def _peak_apart(arguments: Sequence[str], lane: str) -> float:
    """`peak_mb` in a process of its own."""
    command = [sys.executable, "-m", "recap_engine.bench", "costs", *arguments, "--peak", lane]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RecapError(f"The process that measures memory failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.split()[-1])


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
