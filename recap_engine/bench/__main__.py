"""Measures the lanes side by side: speedups over plain decoding, their intervals, and whether outputs are identical.

`python -m recap_engine.bench` asks about fresh drawn pictures, `--data FILE` asks your own questions, and
`python -m recap_engine.bench compare A B` lays two runs side by side.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recap_engine.bench import compare, report
from recap_engine.bench.lanes import LANES, load_adapter
from recap_engine.bench.results import Folder, Setting
from recap_engine.bench.session import Progress, Session
from recap_engine.bench.suites import NAMES, Suite, drawn, read
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.models.placement import DTYPES
from recap_engine.scenes import FAMILIES
from recap_engine.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if arguments[:1] == ["compare"]:
            return lay_side_by_side(_compare_parser().parse_args(arguments[1:]))
        return measure(_parser().parse_args(arguments))
    except RecapError as error:
        print(f"recap_engine.bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def measure(options: argparse.Namespace) -> int:
    """Run the bench: progress to stderr, the tables to stdout, everything to `--out`; also what Ctrl-C leaves."""
    for adapter in options.adapter:
        load_adapter(Path(adapter))
    suites = _suites(options)
    settings = Settings(max_new_tokens=options.max_new_tokens, budget=options.budget, record=False)
    engine = Engine.load(options.model, options.device, options.dtype)
    asked = {name: value for name, value in vars(options).items() if name != "out"}
    session = Session(
        engine,
        suites,
        options.lanes or list(LANES),
        settings,
        Setting({**asked, "model": engine.model_name}, dict(engine.machine)),
        cold=options.memory == "cold",
        most_turns=options.turns,
        most_cases=options.limit,
        folder=Folder(Path(options.out)) if options.out else None,
    )
    try:
        for progress in session.run():
            _show(progress)
    finally:
        if session.measurements:
            print(report.text(session.setting, session.measurements))
            if session.folder:
                report.write(session.folder, session.setting, session.measurements)
    return 0


def lay_side_by_side(options: argparse.Namespace) -> int:
    """Print two runs side by side, and where their settings differ."""
    (first, before), (second, after) = Folder(options.a).read(), Folder(options.b).read()
    print(report.aligned(compare.by_lane(before, after)))
    print()
    print(report.aligned(compare.by_suite(before, after, options.lane)))
    print()
    print("\n".join(f"- {line}" for line in first.changes(second)) or "- both were asked for the same")
    return 0


def _suites(options: argparse.Namespace) -> list[Suite]:
    names = options.suites or ([] if options.data else FAMILIES)
    built_in = [drawn(name, options.count, options.first_seed) for name in (NAMES if names == ["all"] else names)]
    return built_in + [suite for path in options.data for suite in read(Path(path), options.count)]


def _show(progress: Progress) -> None:
    """One line of stderr, rewritten; line after line where stderr is a file."""
    minutes, seconds = divmod(round(progress.left_s), 60)
    line = f"{progress.done} of {progress.total} cases, about {minutes}:{seconds:02} left ({progress.case.suite})"
    last = progress.done == progress.total or not sys.stderr.isatty()
    print(f"\r{line:<78}" if sys.stderr.isatty() else line, end="\n" if last else "", file=sys.stderr, flush=True)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _budget(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _parser() -> argparse.ArgumentParser:
    lanes = "\n".join(f"  {name:<14} {kind.about}" for name, kind in LANES.items())
    parser = argparse.ArgumentParser("python -m recap_engine.bench", description=__doc__, epilog=f"lanes:\n{lanes}")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--suites", type=_split, default=[], help=f"all, or some of {', '.join(NAMES)}; default: the first seven")
    add("--data", action="append", default=[], help="instead: a JSONL file of questions, or a folder with one")
    add("--count", type=_positive, default=6, help="cases a suite (default 6)")
    add("--limit", type=_positive, help="cases in all")
    add("--turns", type=_positive, help="most turns of a conversation")
    add("--first-seed", type=int, default=1000, help="of the drawn pictures")
    add("--max-new-tokens", type=_positive, default=200)
    add("--budget", type=_budget, default="auto", help="most nodes in RECAP's and the oracle's trees; auto fits them")
    add("--memory", choices=("hot", "cold"), default="hot", help="cold: forget everything before each request")
    add("--lanes", type=_split, default=[], help="some of the lanes below, with commas; default: all")
    add("--adapter", action="append", default=[], help="a Python file that adds lanes of your own (see bench/lanes.py)")
    add("--model", help="name on the Hugging Face Hub or a folder; default: the embedded model")
    add("--device", default="auto")
    add("--dtype", default="float32", choices=("auto", *DTYPES))
    add("--out", help="folder for results, tables and the report; a run that was interrupted there is taken up")
    return parser


def _compare_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m recap_engine.bench compare", description=compare.__doc__)
    parser.add_argument("a", type=Path, help="folder of a run")
    parser.add_argument("b", type=Path, help="folder of another")
    parser.add_argument("--lane", default="recap", help="the lane to show suite by suite")
    return parser


if __name__ == "__main__":
    sys.exit(main())
