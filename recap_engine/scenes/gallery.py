"""Writes the example pictures that the page offers: `python -m recap_engine.scenes.gallery`.

Unchosen: of each family the first demo seed whose answer is a sentence or more, since a one-word answer has no trees.
"""

from __future__ import annotations

import json
from pathlib import Path

from .examples import suite
from .questions import FAMILIES

EXAMPLES = Path(__file__).parents[2] / "assets" / "examples"


def write_gallery(folder: Path = EXAMPLES) -> list[dict[str, str | int]]:
    """One PNG a family and an `examples.json` beside them: [{"image", "question", "family", "seed"}, ...]."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str | int]] = []
    for family in FAMILIES:
        example = next(e for e in suite(family, 100, "demo") if not e.closed)
        example.picture.save(folder / f"{family}.png", optimize=True)
        rows.append({"image": f"{family}.png", "question": example.turns[0][0], "family": family, "seed": example.seed})
    (folder / "examples.json").write_text(json.dumps(rows, indent=1) + "\n")
    return rows


if __name__ == "__main__":
    for row in write_gallery():
        print(f"{row['image']:18s} {row['question']}")
