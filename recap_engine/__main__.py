"""The engine at a prompt.

`python -m recap_engine ask PICTURE "QUESTION"` answers with every lane and compares them;
`python -m recap_engine record` records the traces that the lesson opens.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recap_engine import recordings
from recap_engine.engine import ALL_LANES, LANES, Engine
from recap_engine.errors import RecapError
from recap_engine.request import Request
from recap_engine.settings import Settings
from recap_engine.trace import PHASES, LaneTrace, RequestTrace
from recap_engine.weighting import WEIGHTINGS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except RecapError as error:
        print(f"recap_engine: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def ask(options: argparse.Namespace) -> int:
    """Answer one question with each lane; progress to stderr, the answer and the comparison to stdout."""
    settings = Settings(max_new_tokens=options.max_new_tokens, budget=options.budget, weighting=options.weighting)
    engine = Engine.load(options.model, options.device, options.dtype)
    request = engine.prepare(options.question, None if options.picture == "-" else options.picture)
    lanes = [run_lane(engine, request, lane, settings) for lane in options.lanes]
    trace = engine.trace(request, lanes, settings)
    print(lanes[0].text.strip())
    print()
    print(lanes_table(trace))
    print(verdict(trace))
    if options.trace:
        trace.save(options.trace)
        print(f"Trace written to {options.trace}.")
    return 0


def record(options: argparse.Namespace) -> int:
    """Record the lesson's traces; a line for each."""
    settings = Settings(max_new_tokens=options.max_new_tokens, budget=options.budget, weighting=options.weighting)
    engine = Engine.load(options.model, options.device, options.dtype)
    for path in recordings.record(engine, settings, options.folder):
        trace = RequestTrace.load(path)
        print(f"{path.name}, {path.stat().st_size / 1024:.0f} kB: {trace.question}\n{lanes_table(trace)}")
    return 0


def run_lane(engine: Engine, request: Request, lane: str, settings: Settings) -> LaneTrace:
    """Run a lane to its end, rewriting one line of stderr as it goes."""
    for progress in engine.run(request, lane, settings):
        rate = (progress.n_tokens - 1) / progress.elapsed_s if progress.elapsed_s else 0.0
        line = f"{lane:>6}: {progress.n_tokens} tokens in {progress.n_steps} steps, {rate:.1f} a second"
        print(f"\r{line:<70}", end="" if sys.stderr.isatty() else "\n" if progress.done else "", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return progress.trace


def lanes_table(trace: RequestTrace) -> str:
    """Lanes in rows: tokens, steps, mean accepted tokens, seconds per phase, tokens a second, speedup over AR."""
    heads = ("lane", "tokens", "steps", "MAT", "prefill", "seed", *PHASES, "tokens/s", "speedup")
    rows: list[tuple[str, ...]] = [heads]
    baseline = trace.lanes.get("ar")
    for lane in trace.lanes.values():
        seconds = [f"{value:.3f}" for value in (lane.prefill_s, lane.seed_s, *lane.phase_seconds().values())]
        ratio = lane.speedup_over(baseline)
        speedup = "-" if ratio is None else f"{ratio:.2f}"
        rows.append((lane.name, str(lane.n_tokens), str(lane.n_steps), f"{lane.mat:.2f}", *seconds,
                     f"{lane.tokens_per_s:.1f}", speedup))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def verdict(trace: RequestTrace) -> str:
    """Whether all lanes gave the same answer; if not, where they part and how near a tie the target was there."""
    comparison = trace.comparison()
    if comparison.identical:
        return "All lanes gave the same tokens." if len(trace.lanes) > 1 else ""
    lines = []
    for name, difference in comparison.differences.items():
        if difference:
            margin = "unknown" if difference.margin is None else f"{difference.margin:.3g}"
            lines.append(
                f"{name} differs from {comparison.reference} at token {difference.index}: {difference.got} instead of "
                f"{difference.expected}; the target's logit margin there is {margin}."
            )
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m recap_engine", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("ask", help="ask about a picture and compare the decoders")
    command.set_defaults(command=ask)
    command.add_argument("picture", help="picture file; - for none")
    command.add_argument("question")
    lanes = f"some of {','.join(ALL_LANES)}, in the order to run; default: the first three"
    command.add_argument("--lanes", type=_lanes, default=LANES, help=lanes)
    command.add_argument("--trace", type=Path, help="write everything recorded to this .json or .json.gz file")
    _add_settings(command)
    command = commands.add_parser("record", help="record the traces that the lesson opens")
    command.set_defaults(command=record)
    command.add_argument("--folder", type=Path, default=recordings.FOLDER)
    _add_settings(command)
    return parser


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--max-new-tokens", type=int, default=Settings.max_new_tokens)
    command.add_argument("--budget", type=_budget, default="auto", help="most nodes in a tree, or auto")
    command.add_argument("--weighting", choices=WEIGHTINGS, default=Settings.weighting)
    command.add_argument("--model", help="name on the hub or folder; default: the embedded model")
    command.add_argument("--device", default="auto")
    command.add_argument("--dtype", default="auto")


def _lanes(text: str) -> tuple[str, ...]:
    lanes = tuple(dict.fromkeys(text.split(",")))
    if not set(lanes) <= set(ALL_LANES):
        raise argparse.ArgumentTypeError(f"lanes are {', '.join(ALL_LANES)}")
    return lanes


def _budget(text: str) -> int | str:
    return text if text == "auto" else int(text)


if __name__ == "__main__":
    sys.exit(main())
