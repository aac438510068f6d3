"""Runs requests where the GPU is: on a ZeroGPU Space, in a process that is forked for them and may serve several.

Only what pickles passes between the two processes. There go the request and a snapshot of the memories, as a process
that served before has old ones; there come the moments of the run and, after every lane, what the lane changed in its
memory, which is merged here: in the order in which runs report, and without losing a concurrent one's. A trace numbers
its requests as the forked process did, which a concurrent run may make differ from the numbers here.

Stop crosses over in memory that both processes share. If the forked process is ended from outside, the lane at hand is
lost, and no other.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import gradio as gr

from app.lanes import Ask, LaneRun, Moment, StopFlag, answer, look
from app.wiring import sentence
from recap_engine.errors import RecapError

if TYPE_CHECKING:
    from recap_engine.engine import Engine
    from recap_engine.memory import Changes
    from recap_engine.memory_file import Binding, Columns
    from recap_engine.stepcost import StepCost
    from recap_engine.trace import Sensitivity

LEAST_S, MOST_S = 15, 120  # of GPU time to ask for; ZeroGPU lends no longer without more words
SETTING_UP_S = 10.0  # until the model is on the GPU and the cost of its steps is measured
FIRST_PACE_S = 0.1  # seconds a token of a lane, before any was measured
MARGIN = 1.5  # how much more time than it seems to need a run asks for
RUNS = 8  # the pace is that of the slowest of so many latest runs
SLOTS = 4096  # runs at the same time that can be told to stop
GPU = Callable[..., Callable[..., Any]]  # spaces.GPU: called with a duration it decorates a function


def zero_gpu() -> GPU | None:
    """What lends a GPU on a ZeroGPU Space; None anywhere else."""
    try:
        spaces = import_module("spaces")
        return cast(GPU, spaces.GPU) if spaces.config.Config.zero_gpu else None
    except (ImportError, AttributeError):
        return None


@dataclass(frozen=True)
class Work:
    """All that the forked process must know."""

    ask: Ask
    binding: Binding  # of the model that is expected there
    memories: dict[str, Columns]
    cost: StepCost | None
    slot: int  # where Stop is told
    tokens: list[int] | None = None  # look at these without the picture, instead of answering


@dataclass(frozen=True)
class Report:
    """What comes back: a moment of a run, or what was found, or why there is neither."""

    moment: Moment | None = None
    found: Sensitivity | None = None
    refused: str = ""  # a sentence for the visitor
    changes: dict[str, Changes] = field(default_factory=dict)  # by memory
    cost: StepCost | None = None


class SharedStop(StopFlag):
    """The Stop button as the forked process sees it."""

    def __init__(self, board: mmap.mmap, slot: int) -> None:
        self.board, self.slot = board, slot

    @property
    def pressed(self) -> bool:  # type: ignore[override]
        return self.board[self.slot] != 0


class Forked:
    """Answers like `lanes.answer`, in another process."""

    def __init__(self, gpu: GPU) -> None:
        """`gpu` is `spaces.GPU`, or what does the same."""
        self._board = mmap.mmap(-1, SLOTS)  # one byte a run, shared with every process forked from here
        self._slots = count()
        self._paces: deque[float] = deque(maxlen=RUNS)
        self._merging = threading.Lock()
        self._engine: Engine | None = None
        self._call = gpu(duration=self.seconds)(self._serve)

    def answer(self, engine: Engine, ask: Ask, stop: StopFlag) -> Iterator[Moment]:
        """See `lanes.answer`. The memories of `engine` gain what the run learnt. Raises RecapError."""
        slot = next(self._slots) % SLOTS
        self._board[slot] = 0
        began, moment = 0.0, None
        try:
            with closing(self._reports(engine, ask, slot)) as reports:
                for report in reports:
                    began = began or time.monotonic()  # now it has the GPU; the wait for one tells nothing of the pace
                    self._take(engine, report)
                    moment = cast(Moment, report.moment)
                    yield moment
                    self._board[slot] = stop.pressed
        finally:
            self._board[slot] = 1  # whoever left, or was refused, frees the GPU at the next step
        if moment and (tokens := sum(run.n_tokens for run in moment.runs.values())):
            self._paces.append((time.monotonic() - began) / tokens)

    def look(self, engine: Engine, ask: Ask, tokens: list[int]) -> Sensitivity:
        """See `lanes.look`. Raises RecapError."""
        (report,) = self._reports(engine, ask, next(self._slots) % SLOTS, tokens)
        return cast("Sensitivity", report.found)

    def seconds(self, work: Work) -> int:
        """How long to ask for the GPU: what the longest answer of every lane takes at the pace measured here."""
        pace = max(self._paces, default=FIRST_PACE_S)
        longest = work.ask.settings.max_new_tokens * len(work.ask.lanes) if work.tokens is None else len(work.tokens)
        return round(min(max(SETTING_UP_S + MARGIN * pace * longest, LEAST_S), MOST_S))

    def _reports(
        self, engine: Engine, ask: Ask, slot: int, tokens: list[int] | None = None
    ) -> Generator[Report, None, None]:
        """Run in the other process. Raises RecapError for what was refused there, and for a GPU that is not lent."""
        from recap_engine.memory_file import columns

        self._engine = engine.apart()  # what is forked from here finds it
        with self._merging:
            memories = {name: columns(memory) for name, memory in engine.memories.items()}
        work = Work(ask, engine.binding, memories, engine.measured_cost, slot, tokens)
        try:
            for report in self._call(work):
                if report.refused:
                    raise RecapError(report.refused)
                yield report
        except gr.Error as error:
            raise RecapError(f"The GPU could not be used: {error.message}") from error

    def _take(self, engine: Engine, report: Report) -> None:
        """Keep what the other process learnt."""
        if report.cost and engine.measured_cost is None:
            engine.step_cost = report.cost
        with self._merging:
            engine.merge_memories(report.changes)
        if report.moment and report.moment.trace:  # lanes travel once, in the trace
            for name, run in report.moment.runs.items():
                run.trace = report.moment.trace.lanes.get(name)

    def _serve(self, work: Work) -> Iterator[Report]:
        """In the forked process: do the work on memories like those it came with. Errors become words."""
        from recap_engine.memory_file import from_columns

        assert self._engine is not None
        engine = self._engine.apart({name: from_columns(columns) for name, columns in work.memories.items()})
        if work.cost:
            engine.step_cost = work.cost
        try:
            if engine.binding != work.binding:
                raise RecapError("Another model was loaded meanwhile; please try again.")
            if work.tokens is not None:
                yield Report(found=look(engine, work.ask, work.tokens))
            else:
                yield from _reported(engine, work.ask, SharedStop(self._board, work.slot))
        except Exception as error:
            yield Report(refused=sentence(error))


def _reported(engine: Engine, ask: Ask, stop: StopFlag) -> Iterator[Report]:
    """The moments of a run, and with them what each lane changed, as soon as it has ended."""
    marks = {name: memory.mark() for name, memory in engine.memories.items()}
    for moment in answer(engine, ask, stop):
        ended = {name for name, run in moment.runs.items() if run.trace} & marks.keys()
        changes = {name: engine.memories[name].changes_since(marks.pop(name)) for name in ended}
        yield Report(_light(moment), changes=changes, cost=engine.measured_cost)


def _light(moment: Moment) -> Moment:
    """Without the traces of lanes, which are large; the trace of the request, which ends a run, has them too."""
    runs: dict[str, LaneRun] = {name: replace(run, trace=None) for name, run in moment.runs.items()}
    return replace(moment, runs=runs)
