"""Measurements as tables and sentences: for a terminal, Markdown, CSV and JSON."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from recap_engine.bench.ratios import MEAN, headlines, rows
from recap_engine.bench.results import Folder, Measurement, Setting, pack

CELLS = "Suite by suite, speedup in decoding and mean accepted tokens per step (MAT):"
LENGTHS = "The same by the length of the answer:"
SHORT, LONG = 30, 100  # tokens in an answer, up to which it is short, and above which it is long
Table = list[list[str]]  # rows of cells, the heads first


def write(folder: Folder, setting: Setting, measurements: Sequence[Measurement]) -> None:
    """All files of a run but its lines."""
    from recap_engine.bench.html import page  # plotly is only needed here

    found = rows(measurements)
    ratios = {title: asdict(value) for title, value in headlines(measurements).items()}
    folder.save(setting, {"headlines": ratios, "rows": found, "differences": differences(measurements)})
    with (folder.path / "table.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0])
        writer.writeheader()
        writer.writerows(found)
    (folder.path / "run.json").write_text(pack(setting, measurements))
    (folder.path / "table.md").write_text(text(setting, measurements) + "\n")
    (folder.path / "report.html").write_text(page(setting, measurements))


def text(setting: Setting, measurements: Sequence[Measurement]) -> str:
    """Markdown that also reads well in a terminal."""
    found = rows(measurements)
    tables = {"Speedups over ar:": overview(found), CELLS: by_suite(found), LENGTHS: by_length(measurements)}
    parts = [part for title, table in tables.items() for part in (title, "", aligned(table), "")]
    return "\n".join([*parts, *(f"- {line}" for line in sentences(setting, measurements))])


def overview(found: Sequence[dict[str, Any]]) -> Table:
    """Lanes in rows, all suites together: speedups over AR with their intervals."""
    table = [["lane", "decoding", "median", "whole request", "MAT", "tokens/s", "identical"]]
    for row in found:
        if row["suite"] == MEAN:
            speeds = [interval(row, "decode"), number(row["decode_median"]), interval(row, "whole")]
            rates = [number(row["mat"]), number(row["tokens_per_s"], 1)]
            table.append([row["lane"], *speeds, *rates, f"{row['identical']} of {row['requests']}"])
    return table


def by_suite(found: Sequence[dict[str, Any]]) -> Table:
    """Suites in rows, lanes in columns: decoding's speedup over AR, and mean accepted tokens per step."""
    names = [name for name in dict.fromkeys(row["lane"] for row in found) if name != "ar"]
    table = [["suite", "tokens", *names]]
    for suite in dict.fromkeys(row["suite"] for row in found):
        cells = {row["lane"]: row for row in found if row["suite"] == suite}
        own = (f"{number(cells[name]['decode_mean'])}, {number(cells[name]['mat'])}" for name in names)
        table.append([suite, number(cells["ar"]["tokens"], 0), *own])
    return table


def by_length(measurements: Sequence[Measurement]) -> Table:
    """Short, middling and long answers in rows, whatever their suites: how much a drafter gains depends on that."""
    tokens = {m.request: m.tokens for m in measurements if m.lane == "ar"}
    known = sorted((m for m in measurements if m.request in tokens), key=lambda m: tokens[m.request])
    named = [replace(m, suite=_length(tokens[m.request]), case=f"{m.suite} {m.case}") for m in known]
    head, *lines = by_suite([row for row in rows(named) if row["suite"] != MEAN])
    count = {name: len({m.request for m in named if m.suite == name}) for name in dict.fromkeys(m.suite for m in named)}
    return [["answer", "requests", *head[1:]], *([name, str(count[name]), *cells] for name, *cells in lines)]


def _length(tokens: int) -> str:
    return f"up to {SHORT}" if tokens <= SHORT else f"{SHORT + 1} to {LONG}" if tokens <= LONG else f"over {LONG}"


def sentences(setting: Setting, measurements: Sequence[Measurement]) -> list[str]:
    """What the tables don't say: the ratios people ask for, whether outputs were identical, and how it was measured."""
    lines = [f"{title}: {value}, median {value.median:.2f}" for title, value in headlines(measurements).items()]
    reference, *others = dict.fromkeys(m.lane for m in measurements)
    compared = [m for m in measurements if m.lane in others]
    lines.append(f"identical to {reference}: {sum(m.identical for m in compared)} of {len(compared)} runs")
    lines += differences(measurements)
    judged = [m.right for m in measurements if m.lane == reference and m.right is not None]
    if judged:
        lines.append(f"answers of {reference} that hold the expected words: {sum(judged)} of {len(judged)}")
    return [*lines, *(f"budget of {lane}: {nodes}" for lane, nodes in setting.budgets.items()), *setting.notes]


def differences(measurements: Sequence[Measurement]) -> list[str]:
    """One sentence for every answer that is not the reference's."""
    return [
        f"{m.lane} differs on {m.suite} {m.case}, turn {m.turn}, at token {m.differs_at}: margin {m.margin:.2e}"
        for m in measurements
        if not m.identical
    ]


def aligned(table: Table) -> str:
    """As Markdown, its columns padded."""
    widths = [max(3, *map(len, column)) for column in zip(*table, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    lines.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def interval(row: dict[str, Any], clock: str) -> str:
    """A row's mean with its 95 % interval."""
    low, high = number(row[f"{clock}_low"]), number(row[f"{clock}_high"])
    return f"{number(row[f'{clock}_mean'])} [{low}, {high}]"
