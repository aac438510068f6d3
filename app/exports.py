"""Saving what the page shows: tables as CSV and JSON, figures as PNG, SVG or a page of their own.

A table travels in its link, so a download needs neither a file on the server nor a script. Figures are saved by the
browser, which has drawn them; see `inspector.js`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

import pandas as pd

FORMATS = {"png": "PNG", "svg": "SVG", "html": "HTML"}


def html_table(columns: Iterable[str], rows: Iterable[Sequence[object]], what: str, choose: bool = False) -> str:
    """A table as HTML, the first cell of a row as its head; a narrow page scrolls it. `what` is for screen readers.

    Plain, as gradio's own table draws no rows where it was hidden when they came. With `choose` a row can be chosen:
    see `inspector.js`.
    """
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = (
        (f'<tr data-row="{number}" tabindex="0">' if choose else "<tr>") + f'<th scope="row">{escape(str(head))}</th>'
        f"{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
        for number, (head, *cells) in enumerate(rows)
    )
    return (
        f'<div class="rows" tabindex="0" role="region" aria-label="{escape(what)}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def table_links(table: pd.DataFrame, name: str, what: str) -> str:
    """Two links that save `table` as `name`.csv and `name`.json; `what` says to a screen reader which table it is."""
    made = {
        "csv": ("text/csv", table.to_csv(index=False)),
        "json": ("application/json", table.to_json(orient="records", force_ascii=False)),
    }
    links = "".join(
        f'<a class="tool" download="{name}.{ending}" aria-label="Save {what} as {ending.upper()}"'
        f' href="data:{kind};charset=utf-8;base64,{b64encode(text.encode()).decode()}">{ending.upper()}</a>'
        for ending, (kind, text) in made.items()
    )
    return f'<div class="tools" role="group" aria-label="Save {what}"><span>Save {what}</span>{links}</div>'


def figure_tools(figure: str, what: str, zoom: bool = False) -> str:
    """Buttons that save the figure with the element id `figure`, and with `zoom` make it larger and smaller."""
    zooms = "".join(
        f'<button type="button" class="tool" data-zoom="{by}" data-figure="{figure}" aria-label="{label}">'
        f"{sign}</button>"
        for by, sign, label in (("in", "+", "Zoom in"), ("out", "−", "Zoom out"), ("fit", "Fit", "Fit to the page"))
    )
    saves = "".join(
        f'<button type="button" class="tool" data-save="{ending}" data-figure="{figure}"'
        f' aria-label="Save {what} as {label}">{label}</button>'
        for ending, label in FORMATS.items()
    )
    return (
        f'<div class="tools" role="group" aria-label="Tools of {what}">{"<span>Zoom</span>" + zooms if zoom else ""}'
        f"<span>Save</span>{saves}</div>"
    )
