"""What the bench's commands share at a prompt: which questions, which model, and how far a run is."""

import argparse
import sys
from pathlib import Path
from typing import Any

from recap_engine.bench.session import Progress
from recap_engine.bench.suites import NAMES, Suite, drawn, read
from recap_engine.engine import Engine
from recap_engine.models.placement import DTYPES
from recap_engine.scenes import FAMILIES


def parser(command: str, about: str | None, count: int = 6, **more: Any) -> argparse.ArgumentParser:
    """A parser with the options that choose questions and a model; `count` cases a suite unless told otherwise."""
    made = argparse.ArgumentParser(f"python -m recap_engine.bench{command}", description=about, **more)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    add = made.add_argument
    add("--suites", type=split, default=[], help=f"all, or some of {', '.join(NAMES)}; default: the first seven")
    add("--data", action="append", default=[], help="instead: a JSONL file of questions, or a folder with one")
    add("--count", type=positive, default=count, help=f"cases a suite (default {count})")
    add("--limit", type=positive, help="cases in all")
    add("--first-seed", type=int, default=1000, help="of the drawn pictures")
    add("--max-new-tokens", type=positive, default=200)
    add("--model", help="name on the Hugging Face Hub or a folder; default: the embedded model")
    add("--device", default="auto")
    add("--dtype", default="float32", choices=("auto", *DTYPES))
    return made


def suites(options: argparse.Namespace) -> list[Suite]:
    """The questions asked for. Raises RecapError for an unknown suite or a file that holds none."""
    warm = getattr(options, "warm", 0)  # not every command has it
    names = options.suites or ([] if options.data else FAMILIES)
    built_in = [drawn(name, options.count, options.first_seed, warm) for name in (NAMES if names == ["all"] else names)]
    return built_in + [suite for path in options.data for suite in read(Path(path), options.count, warm)]


def engine(options: argparse.Namespace) -> Engine:
    return Engine.load(options.model, options.device, options.dtype)


def asked(options: argparse.Namespace, model: Engine) -> dict[str, Any]:
    """The options as a run's setting keeps them: two runs with equal ones measure the same."""
    apart = ("out", "check")
    return {name: value for name, value in vars(options).items() if name not in apart} | {"model": model.model_name}


def show(progress: Progress) -> None:
    """One line of stderr, rewritten; line after line where stderr is a file."""
    line = f"\r{progress!s:<78}" if sys.stderr.isatty() else str(progress)
    last = progress.done == progress.total or not sys.stderr.isatty()
    print(line, end="\n" if last else "", file=sys.stderr, flush=True)


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
