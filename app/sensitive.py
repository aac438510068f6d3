"""Image-sensitive states: where in the answer the picture moves the target, and whether drafts are accepted there.

A state is one token's next-token distribution. It counts as image-sensitive if the target would have chosen another
token without the picture, or if its distribution moved by more than SENSITIVE_KL. The threshold is our choice; the
abstract of RECAP (arXiv 2611.05894) says that such states are where reuse fails most often, and gives no definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from math import log1p

import pandas as pd

from app.marks import DRAFTING, LANES, shown
from recap_engine.trace import SENSITIVE_KL, LaneTrace, RequestTrace, Sensitivity, is_sensitive

DARKEST_KL = 5.0  # nats, from which on the strip is as dark as it gets


@dataclass(frozen=True)
class Counts:
    """What became of a lane's drafts at one kind of state."""

    states: int = 0  # of the answer
    tried: int = 0  # of them, those at which at least one candidate was verified
    accepted: int = 0  # of them, those at which one was the target's own choice

    @property
    def rate(self) -> float:
        return self.accepted / self.tried if self.tried else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.states + other.states, self.tried + other.tried, self.accepted + other.accepted)


Split = dict[str, tuple[Counts, Counts]]  # per drafting lane: at image-sensitive states, at the others


def split(trace: RequestTrace) -> Split:
    """The drafts of every drafting lane at both kinds of states; empty without a sensitivity.

    A lane is followed as far as its answer is that of the first lane, for which the sensitivity was computed.
    """
    if trace.sensitivity is None:
        return {}
    reference = next(iter(trace.lanes.values()))
    return {name: _counts(trace.lanes[name], reference, trace.sensitivity) for name in DRAFTING if name in trace.lanes}


def _counts(lane: LaneTrace, reference: LaneTrace, sensitivity: Sensitivity) -> tuple[Counts, Counts]:
    pairs = zip(lane.tokens, reference.tokens, sensitivity.kl, sensitivity.changed, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    sensitive, other = Counts(), Counts()
    for step in lane.steps:
        drafted_from = set(step.parents)
        for place, parent in enumerate([-1, *step.accepted][: len(step.emitted)]):
            index = step.root_position + 1 + place
            if index >= same:
                return sensitive, other
            count = Counts(1, int(parent in drafted_from), int(place < len(step.accepted)))
            if is_sensitive(sensitivity, index):
                sensitive += count
            else:
                other += count
    return sensitive, other


def pooled(splits: Iterable[Split]) -> Split:
    """Several answers taken together."""
    total: Split = {}
    for one in splits:
        for name, (sensitive, other) in one.items():
            before = total.get(name, (Counts(), Counts()))
            total[name] = before[0] + sensitive, before[1] + other
    return total


def heat_strip(trace: RequestTrace) -> str:
    """The answer as HTML: the darker, the more the picture moved the target there; `≠` where it changed its choice."""
    sensitivity = trace.sensitivity
    if sensitivity is None:
        return ""
    lane = next(iter(trace.lanes.values()))
    boxes = "".join(
        _box(shown(token, trace.token_text), sensitivity.kl[index], sensitivity.changed[index])
        for index, token in enumerate(lane.tokens[: len(sensitivity.kl)])
    )
    moved = sum(is_sensitive(sensitivity, index) for index in range(len(sensitivity.kl)))
    changed = sum(sensitivity.changed)
    return (
        f'<div class="strip heat" role="group" aria-label="The answer: how much the picture mattered">{boxes}</div>'
        f'<p class="facts"><b>{moved} of {len(sensitivity.kl)} states are image-sensitive</b>: at {changed} of them '
        f"the target would have chosen another token without the picture, at the others its distribution moved by more "
        f"than {SENSITIVE_KL} nats.</p>"
    )


def heat(kl: float) -> float:
    """From 0, not moved, to 1, moved by DARKEST_KL nats or more; small movements are told apart as well as large."""
    return min(1.0, log1p(10 * max(kl, 0.0)) / log1p(10 * DARKEST_KL))


def _box(text: str, kl: float, changed: bool) -> str:
    told = f"moved by {kl:.3f} nats{'; without the picture the target would have said another token' * changed}"
    mark = '<sup aria-hidden="true">≠</sup>' if changed else ""
    return (
        f'<span class="token{" changed" if changed else ""}" style="--heat:{heat(kl):.0%}" title="{escape(told)}">'
        f"{escape(text)}{mark}</span>"
    )


def heat_legend() -> str:
    """What the colours of the heat strip mean."""
    scale = {
        0.0: "not moved",
        0.05: "0.05",
        SENSITIVE_KL: f"{SENSITIVE_KL}",
        DARKEST_KL: f"{DARKEST_KL:.0f} nats or more",
    }
    steps = "".join(
        f'<li><i class="heat" style="--heat:{heat(kl):.0%}"></i>{words}</li>' for kl, words in scale.items()
    )
    unequal = '<li><b class="unequal">≠</b>another token without the picture</li>'
    return f'<ul class="legend" aria-label="Legend">{steps}{unequal}</ul>'


def sensitivity_table(trace: RequestTrace) -> pd.DataFrame:
    """One row per token of the answer."""
    sensitivity = trace.sensitivity
    if sensitivity is None:
        return pd.DataFrame()
    states = range(len(sensitivity.kl))
    tokens = next(iter(trace.lanes.values())).tokens[: len(states)]
    columns = {
        "index": states,
        "token": tokens,
        "text": [trace.token_text.get(token, "") for token in tokens],
        "kl": sensitivity.kl,
        "changed": sensitivity.changed,
        "sensitive": [is_sensitive(sensitivity, index) for index in states],
    }
    return pd.DataFrame(columns)


def split_sentence(parts: Mapping[str, tuple[Counts, Counts]]) -> str:
    """The split of one answer in words, as HTML."""
    told = []
    for name, (sensitive, other) in parts.items():
        told.append(
            f"<b>{LANES[name].short}</b>: {_of(sensitive)} at image-sensitive states, {_of(other)} at the others"
        )
    return f'<p class="facts">Drafts accepted: {"; ".join(told)}.</p>' if told else ""


def _of(counts: Counts) -> str:
    return f"{counts.accepted} of {counts.tried}" if counts.tried else "nothing drafted"
