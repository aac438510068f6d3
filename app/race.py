"""The race: the lanes' own timestamps, ready to be replayed in the browser at true or slowed speed.

Nothing runs again. `race_board` puts everything that the replay needs into the page once; `inspector.js` moves it.
"""

from __future__ import annotations

import json
from html import escape
from itertools import accumulate
from typing import Any

import pandas as pd

from app.figures.timing import token_times
from app.marks import LANES, seconds
from recap_engine.trace import LaneTrace, RequestTrace

SLOWER = {1: "true speed", 2: "2 × slower", 5: "5 × slower", 20: "20 × slower"}


def race_data(trace: RequestTrace) -> dict[str, Any]:
    """What a replay needs: per lane the moments at which tokens came, how many there were, and the text by then.

    `chars` cuts the lane's text after each moment; token texts alone don't always add up to it (a character may be
    spread over several tokens), so the last cut is the whole text.
    """
    return {"ends": max((lane.decode_s for lane in trace.lanes.values()), default=0.0)} | {
        "lanes": [_lane_data(lane, trace) for lane in trace.lanes.values()]
    }


def _lane_data(lane: LaneTrace, trace: RequestTrace) -> dict[str, Any]:
    times, counts = token_times(lane)
    lengths = accumulate((len(trace.token_text.get(token, "")) for token in lane.tokens), initial=0)
    at = list(lengths)
    chars = [min(at[count], len(lane.text)) for count in counts[:-1]] + [len(lane.text)]
    return {
        "name": lane.name,
        "times": [round(time, 6) for time in times],
        "counts": counts,
        "chars": chars,
        "text": lane.text,
    }


def race_board(trace: RequestTrace) -> str:
    """The lanes at the finish, with the controls of the replay."""
    longest = max((lane.n_tokens for lane in trace.lanes.values()), default=1)
    runners = "".join(_runner(lane, longest) for lane in trace.lanes.values())
    options = "".join(f'<option value="{factor}">{words}</option>' for factor, words in SLOWER.items())
    data = escape(json.dumps(race_data(trace)))
    end = max((lane.decode_s for lane in trace.lanes.values()), default=0.0)
    return (
        f'<div class="race" data-race="{data}"><div class="tools" role="group" aria-label="Replay">'
        '<button type="button" class="tool go" data-race-play>▶ Replay the race</button>'
        f'<label>Speed <select class="tool" data-race-speed>{options}</select></label>'
        '<label class="moment">Moment <input type="range" data-race-at min="0" max="1000" value="1000"></label>'
        f'<output data-race-clock aria-live="off">{seconds(end)}</output></div>{runners}</div>'
    )


def _runner(lane: LaneTrace, longest: int) -> str:
    mark = LANES[lane.name]
    return (
        f'<section class="runner finished" style="--lane:{mark.colour}" data-runner="{lane.name}"'
        f' aria-label="{mark.name}">'
        f"<h4>{mark.name}</h4><p class='track'><i style='width:{lane.n_tokens / longest:.2%}'></i></p>"
        f'<p class="count"><b data-count>{lane.n_tokens}</b> tokens</p>'
        f'<p class="count" data-finish>done after {seconds(lane.decode_s)}</p>'
        f'<p class="words"><span aria-hidden="true">{escape(lane.text)}</span>'  # it keeps the height
        f"<span data-words>{escape(lane.text)}</span></p></section>"
    )


def steps_table(trace: RequestTrace) -> pd.DataFrame:
    """One row per step of every lane: what it emitted and how long each phase took."""
    frames = [lane.steps_frame().assign(lane=lane.name) for lane in trace.lanes.values() if lane.steps]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
