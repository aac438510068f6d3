"""Measures the lanes side by side: speedups over plain decoding, their intervals, and whether outputs are identical.

`python -m recap_engine.bench` asks about fresh drawn pictures, `--data FILE` asks your own questions. More commands:

    compare A B     two runs side by side
    ablation        which of RECAP's choices earns what
    costs           what recording, long answers and memories cost
    check FOLDER    are the figures that this project promises reached? The exit status says so (or --check FOLDER)
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from recap_engine.bench import ablation, check, compare, costs, options, report
from recap_engine.bench.lanes import LANES, load_adapter
from recap_engine.bench.results import Folder, Setting
from recap_engine.bench.session import Session
from recap_engine.errors import RecapError
from recap_engine.settings import Settings

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "compare": compare.main,
    "ablation": ablation.main,
    "costs": costs.main,
    "check": check.main,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if arguments and arguments[0] in COMMANDS:
            return COMMANDS[arguments[0]](arguments[1:])
        asked = _parser().parse_args(arguments)
        return check.main(asked.check) if asked.check else measure(asked)
    except RecapError as error:
        print(f"recap_engine.bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def measure(asked: argparse.Namespace) -> int:
    """Run the bench: progress to stderr, the tables to stdout, everything to `--out`; also what Ctrl-C leaves."""
    for adapter in asked.adapter:
        load_adapter(Path(adapter))
    suites = options.suites(asked)
    settings = Settings(max_new_tokens=asked.max_new_tokens, budget=asked.budget, record=False)
    engine = options.engine(asked)
    session = Session(
        engine,
        suites,
        asked.lanes or list(LANES),
        settings,
        Setting(options.asked(asked, engine), dict(engine.machine)),
        cold=asked.memory == "cold",
        most_turns=asked.turns,
        most_cases=asked.limit,
        folder=Folder(Path(asked.out)) if asked.out else None,
    )
    try:
        for progress in session.run():
            options.show(progress)
    finally:
        if session.measurements:
            print(report.text(session.setting, session.measurements))
            if session.folder:
                report.write(session.folder, session.setting, session.measurements)
    return 0 if asked.check is None else check.tell([(session.setting, session.measurements)], [])


def _budget(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _parser() -> argparse.ArgumentParser:
    lanes = "\n".join(f"  {name:<14} {kind.about}" for name, kind in LANES.items())
    parser = options.parser("", __doc__, epilog=f"lanes:\n{lanes}")
    add = parser.add_argument
    add("--turns", type=options.positive, help="most turns of a conversation")
    add("--budget", type=_budget, default="auto", help="most nodes in RECAP's and the oracle's trees; auto fits them")
    add("--memory", choices=("hot", "cold"), default="hot", help="cold: forget everything before each request")
    add("--warm", type=options.positive, default=0, help="other questions a suite that hot memories serve first")
    add("--lanes", type=options.split, default=[], help="some of the lanes below, with commas; default: all")
    add("--adapter", action="append", default=[], help="a Python file that adds lanes of your own (see bench/lanes.py)")
    add("--out", help="folder for results, tables and the report; a run that was interrupted there is taken up")
    add("--check", nargs="*", metavar="FOLDER", help="then do what `check` does with this run; or only with FOLDERs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
