"""Writes the example pictures that the page offers: `python -m recap_engine.scenes.gallery`. The first demo seeds, unchosen."""

from __future__ import annotations

import json
from pathlib import Path

from .examples import make_example
from .questions import FAMILIES

EXAMPLES = Path(__file__).parents[2] / "assets" / "examples"


def write_gallery(folder: Path = EXAMPLES) -> list[dict[str, str | int]]:
    """One PNG a family and an `examples.json` beside them: [{"image", "question", "family", "seed"}, ...]."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str | int]] = []
    for family in FAMILIES:
        example = make_example(family, 0, "demo")
        example.picture.save(folder / f"{family}.png", optimize=True)
        rows.append({"image": f"{family}.png", "question": example.turns[0][0], "family": family, "seed": 0})
    (folder / "examples.json").write_text(json.dumps(rows, indent=1) + "\n")
    return rows


if __name__ == "__main__":
    for row in write_gallery():
        print(f"{row['image']:18s} {row['question']}")
