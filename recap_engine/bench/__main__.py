"""`python -m recap_engine.bench`: seven families of fresh pictures, every lane, one table."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path

from recap_engine.bench.report import summary, table
from recap_engine.bench.runner import Runner, lanes, mean_nodes
from recap_engine.engine import Engine
from recap_engine.scenes import FAMILIES, Example, suite
from recap_engine.settings import Settings


def sentences(family: str, count: int, split: str, first_seed: int) -> Iterator[Example]:
    """The first `count` examples answered in a sentence or more: a one-word answer is over before there is a step."""
    return islice((e for e in suite(family, 100 * count, split, first_seed) if not e.closed), count)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recap_engine.bench", description=__doc__)
    parser.add_argument("--pictures", type=int, default=10, help="fresh pictures a family")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--max-new-tokens", type=int, default=200)
    parser.add_argument("--budget", default="auto", type=lambda text: text if text == "auto" else int(text))
    parser.add_argument("--model", help="name on the hub or folder; default: the embedded model")
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    args = parser.parse_args()

    engine = Engine.load(args.model, dtype="float32")
    warm_up = [next(sentences(family, 1, "validation", 0)) for family in FAMILIES]
    nodes = mean_nodes(engine, warm_up, Settings(max_new_tokens=args.max_new_tokens, budget=args.budget))
    runner = Runner(engine, lanes(args.max_new_tokens, args.budget, nodes))
    runner.compare(warm_up[0], runner.lanes)  # thrown away
    examples = chain.from_iterable(zip(*(sentences(f, args.pictures, "bench", args.first_seed) for f in FAMILIES)))
    load = os.getloadavg()[0]
    measurements = list(runner.run(examples, lambda text: print(f"{text:<30}", end="\r", file=sys.stderr)))
    print(table(measurements))
    print("\n".join(summary(measurements)))
    setting = {
        "machine": engine.machine,
        "load at start": load,
        "pictures a family": args.pictures,
        "first seed": args.first_seed,
        "max new tokens": args.max_new_tokens,
        "budget": args.budget,
    }
    print(json.dumps(setting))
    if args.json:
        args.json.write_text(json.dumps({**setting, "measurements": [asdict(m) for m in measurements]}, indent=1))


if __name__ == "__main__":
    main()
