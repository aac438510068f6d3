"""How a token, a source, a lane and a phase look and read, the same in every card, figure and table.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart; nothing on the page is told by colour
alone (source names stand in the legend, the hover text and the table).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recap_engine.trace import PERSISTENT, SCOPES

ORDER_COLOURS = {1: "#E69F00", 2: "#56B4E9", 3: "#009E73"}
BONUS_COLOUR = "#CC79A7"
HALO_COLOUR = "rgba(0,114,178,0.35)"  # behind the chosen node
NEUTRAL = "#8A94A6"  # reads on a white and on a dark page

PHASE_COLOURS = {
    "seed": "#A8B0BD",  # before decoding, as the prefill is
    "prefill": "#6B7280",
    "draft": "#4C3F91",
    "verify": "#8573C9",
    "accept": "#B4A6E8",
    "update": "#D9D0F7",
}


@dataclass(frozen=True)
class SourceMark:
    """What the page calls one source. Its colour tells how long the keys are, its shape whether long ones persist."""

    name: str
    colour: str
    outlives: bool = False  # a long key that outlives its request, as RECAP+'s do: a triangle, a dashed line


SOURCES = {  # by lane, then by order
    lane: {
        order: SourceMark(f"{order}-gram, {scope}", ORDER_COLOURS[order], order > 1 and scope == PERSISTENT)
        for order, scope in scopes.items()
    }
    for lane, scopes in SCOPES.items()
}


@dataclass(frozen=True)
class LaneMark:
    """What the page calls one decoder, and its colour."""

    short: str
    name: str
    colour: str


LANES = {
    "ar": LaneMark("AR", "Autoregressive", "#7F7F7F"),
    "tr": LaneMark("TR", "Token Recycling", "#D55E00"),
    "recap": LaneMark("RECAP", "RECAP", "#0072B2"),
    "recap+": LaneMark("RECAP+", "RECAP+", "#7733EE"),
}  # in the order of the cards
DEFAULT_LANES = ("ar", "tr", "recap")
DRAFTING = ("recap", "recap+", "tr")  # those with trees to look at, in the order in which they are shown


def visible(text: str) -> str:
    """The token's text with its white space shown: a space is `·`, a newline `↵`, a tab `⇥`, nothing at all `∅`."""
    if not text:
        return "∅"
    return text.replace(" ", "·").replace("\r\n", "↵").replace("\n", "↵").replace("\r", "↵").replace("\t", "⇥")


def shown(token: int, token_text: Mapping[int, str]) -> str:
    """A token as the page shows it; its number where the trace has no text for it. Not escaped."""
    return visible(token_text.get(token, f"#{token}"))


def shortened(text: str, limit: int) -> str:
    """The text cut to `limit` characters, an ellipsis included."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def seconds(value: float) -> str:
    """A duration for people: `7.3 ms`, `840 ms`, `2.41 s`."""
    if value < 0.01:
        return f"{value * 1000:.1f} ms"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
