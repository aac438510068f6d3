"""The page's head, the lane cards and the verdict under them, as HTML. Pure functions: what is known -> a string."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from app import texts
from app.lanes import LaneRun, turn_order
from app.marks import DRAFTING, LANES, seconds, visible
from recap_engine.trace import Difference, RequestTrace

if TYPE_CHECKING:
    from recap_engine.request import Reduced

STATES = {"idle": "", "waiting": "waiting", "running": "decoding", "done": "done", "stopped": "stopped"}
EMPTY_HINTS = {
    "ar": "One pass of the model for every token: the yardstick.",
    "tr": "Proposes what followed the last token before, whatever the picture was.",
    "recap": "Proposes what followed the last one, two and three tokens; the longer keys know this picture alone.",
    "recap+": texts.VARIANT,
}


def masthead(state: str, words: str) -> str:
    """The page's head. `state` is loading, ready or failed; `words` name the model, or say what is wrong."""
    chip = f'<span class="chip {state}" role="status">{escape(words)}</span>'
    return f'<div class="masthead"><div><h1>{texts.TITLE}</h1>{chip}</div><p>{texts.TAGLINE}</p></div>'


def heading(title: str, subtitle: str, level: int = 2) -> str:
    """The head of a part of the page."""
    return f'<div class="heading"><h{level}>{title}</h{level}><p>{subtitle}</p></div>'


def lane_cards(runs: Mapping[str, LaneRun]) -> str:
    """All lanes side by side, in the order of `runs`."""
    baseline = runs.get("ar")
    return f'<div class="lanes">{"".join(_card(run, baseline) for run in runs.values())}</div>'


def empty_cards(lanes: Sequence[str]) -> str:
    """The cards before the first run: what each lane is."""
    return lane_cards({name: LaneRun(name, state="idle") for name in lanes})


def _card(run: LaneRun, baseline: LaneRun | None) -> str:
    mark = LANES[run.name]
    figures = (
        ("time", seconds(run.elapsed_s) if run.n_tokens else "–"),
        ("tokens/s", f"{run.tokens_per_s:.0f}" if run.tokens_per_s else "–"),
        ("tokens/step", f"{run.mat:.2f}" if run.mat else "–"),
        ("vs AR", _speedup(run, baseline)),
    )
    numbers = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in figures)
    words = escape(run.text) if run.text else f'<span class="quiet">{EMPTY_HINTS[run.name]}</span>'
    return (
        f'<section class="lane {run.state}" style="--lane:{mark.colour}" data-lane="{run.name}"'
        f' aria-label="{mark.name}"><header><h3>{mark.name}</h3><span>{STATES[run.state]}</span></header>'
        f"<dl>{numbers}</dl>"
        f'<p class="answer">{words}</p></section>'
    )


def _speedup(run: LaneRun, baseline: LaneRun | None) -> str:
    """Tokens per second over those of the AR lane; blank until both lanes have ended."""
    ended = ("done", "stopped")
    if baseline is None or baseline.state not in ended or run.state not in ended or not baseline.tokens_per_s:
        return "–"
    return f"{run.tokens_per_s / baseline.tokens_per_s:.2f}×"


def verdict(trace: RequestTrace) -> str:
    """Whether the lanes gave the same tokens; if not, the first difference and the target's margin there."""
    if len(trace.lanes) < 2:
        return notice("One lane ran, so there is nothing to compare its answer with.")
    comparison = trace.comparison()
    differing = {name: difference for name, difference in comparison.differences.items() if difference}
    if differing:
        return notice(" ".join(_difference(trace, name, difference) for name, difference in differing.items()), "bad")
    stopped = [lane for lane in trace.lanes.values() if lane.stopped == "cancelled"]
    if stopped:
        return notice("Stopped. As far as each lane came, all gave the very same tokens.", "info")
    count = next(iter(trace.lanes.values())).n_tokens
    return notice(f"All {len(trace.lanes)} lanes gave the very same {count} tokens.{_speedups(trace)}", "good")


def _difference(trace: RequestTrace, name: str, difference: Difference) -> str:
    def named(token: int | None) -> str:
        return "its end" if token is None else f"“{visible(trace.token_text.get(token, f'#{token}'))}”"

    reference = LANES[trace.comparison().reference].short
    sentence = (
        f"{LANES[name].name} leaves {reference}'s answer at token {difference.index + 1}: "
        f"it has {named(difference.got)} where {reference} has {named(difference.expected)}."
    )
    if difference.margin is None:
        return sentence
    return f"{sentence} The model's margin between its two best tokens is {difference.margin:.3g} logits there; {TIE}"


TIE = "near zero it is a tie, which half precision may break either way, and a large margin would be a fault of ours."


def _speedups(trace: RequestTrace) -> str:
    """` Against AR's speed: RECAP 1.92×, Token Recycling 1.48×.`, or nothing without an AR lane."""
    baseline = trace.lanes.get("ar")
    if baseline is None or not baseline.tokens_per_s:
        return ""
    times = [
        f"{LANES[name].name} {trace.lanes[name].speedup_over(baseline):.2f}×"
        for name in DRAFTING
        if name in trace.lanes
    ]
    return f" Against AR's speed: {', '.join(times)}."


def closing_words(lanes: Sequence[str], turn: int, with_picture: bool, reduced: Sequence[Reduced] = ()) -> str:
    """What a run was, once it has ended: in which order the lanes answered, and from what."""
    order = ", then ".join(LANES[name].name for name in turn_order(lanes, turn))
    parts = ["" if with_picture else texts.WITHOUT_PICTURE, f"Order of this run: {order}.", reduced_words(reduced)]
    return " ".join(part for part in parts if part)


def reduced_words(reduced: Sequence[Reduced]) -> str:
    """Which pictures the model was not shown at their own size; nothing if there are none."""
    sizes = "; ".join(f"{w} × {h} pixels as {less} × {lower}" for (w, h), (less, lower) in reduced)
    return f"The model was shown {sizes}." if sizes else ""


def notice(sentence: str, kind: str = "info") -> str:
    """One sentence to the visitor, read out by a screen reader; `kind` is info, good or bad."""
    return f'<p class="notice {kind}" role="status">{escape(sentence)}</p>' if sentence else ""
