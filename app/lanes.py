"""Runs the lanes of one request, one after another on the same device, and streams how far they are.

Fair timing: a lane's clock is the engine's. It runs while a step runs and stands still while the page is being told of
it, so neither drawing the cards nor a slow network ever counts in a lane's time. Telling the page ten times a second
(not after every step) keeps the pauses few.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from app import texts
from app.marks import LANES
from recap_engine.trace import LaneTrace, RequestTrace, Sensitivity

if TYPE_CHECKING:
    from recap_engine.decode import Progress
    from recap_engine.engine import Engine
    from recap_engine.request import Reduced, Request
    from recap_engine.settings import Settings

PAGE_INTERVAL_S = 0.1  # shortest time between two updates of the page


@dataclass
class StopFlag:
    """Set by the Stop button, read between two steps. One per visitor."""

    pressed: bool = False


@dataclass
class LaneRun:
    """What the page knows of a lane at this moment."""

    name: str
    state: str = "waiting"  # idle | waiting | running | done | stopped
    text: str = ""
    n_tokens: int = 0
    n_steps: int = 0
    elapsed_s: float = 0.0  # of decoding, by the engine's clock
    prefill_s: float = 0.0
    trace: LaneTrace | None = None

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of decoding; the first token came with the prefill."""
        return (self.n_tokens - 1) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def mat(self) -> float:
        """Mean accepted tokens per step, the bonus token included."""
        return (self.n_tokens - 1) / self.n_steps if self.n_steps else 0.0

    def follow(self, progress: Progress) -> None:
        """Take over what the engine says of this lane."""
        self.text, self.n_tokens, self.n_steps = progress.text, progress.n_tokens, progress.n_steps
        self.elapsed_s, self.prefill_s = progress.elapsed_s, progress.prefill_s


def turn_order(lanes: Sequence[str], turn: int) -> list[str]:
    """The chosen lanes, first one first; the first lane moves to the end from turn to turn, so none is always warm."""
    chosen = [name for name in LANES if name in lanes]
    first = turn % len(chosen) if chosen else 0
    return chosen[first:] + chosen[:first]


@dataclass(frozen=True)
class Ask:
    """One press of Run."""

    question: str
    picture: str | None  # path of an image file
    lanes: Sequence[str]
    settings: Settings
    turn: int = 0  # how many runs this visitor had before; see `turn_order`


@dataclass
class Moment:
    """What the page shows at one moment of a run. The last moment of a run carries its trace."""

    doing: str
    runs: dict[str, LaneRun]
    trace: RequestTrace | None = None
    reduced: Sequence[Reduced] = ()  # pictures that the model was shown smaller; the last moment tells


def answer(engine: Engine, ask: Ask, stop: StopFlag) -> Iterator[Moment]:
    """Answer one request lane by lane. Pressing Stop ends it after the step at hand and keeps what there is.

    Raises RecapError for a request that cannot be answered (a broken picture, a question that is too long).
    """
    runs = {name: LaneRun(name) for name in LANES if name in ask.lanes}
    yield Moment("Reading the picture and the question …", runs)
    request = engine.prepare(ask.question, ask.picture)
    if runs.keys() & {"recap", "recap+"} and ask.settings.budget == "auto":
        yield Moment(texts.MEASURING_COST, runs)
        _ = engine.step_cost
    for name in turn_order(ask.lanes, ask.turn):
        doing = f"{LANES[name].name} is answering …"
        runs[name].state = "running"
        yield Moment(doing, runs)
        for _ in _run_lane(engine, request, runs[name], ask.settings, stop):
            yield Moment(doing, runs)
        if stop.pressed:
            break
    traces = [run.trace for run in runs.values() if run.trace]
    yield Moment("", runs, engine.trace(request, traces, ask.settings) if traces else None, request.reduced)


def look(engine: Engine, ask: Ask, tokens: list[int]) -> Sensitivity:
    """How much the picture of `ask` matters to each token of an answer to it. Raises RecapError."""
    return engine.sensitivity(engine.prepare(ask.question, ask.picture), tokens)


def _run_lane(engine: Engine, request: Request, run: LaneRun, settings: Settings, stop: StopFlag) -> Iterator[None]:
    """Follow one lane to its end, pausing at most every PAGE_INTERVAL_S for the page."""
    told = time.monotonic()
    with closing(cast("Generator[Progress]", engine.run(request, run.name, settings))) as progresses:
        for progress in progresses:
            run.follow(progress)
            if time.monotonic() - told >= PAGE_INTERVAL_S:
                yield
                told = time.monotonic()
            if stop.pressed:
                break
    run.trace = progress.trace
    run.state = "done" if progress.done else "stopped"
