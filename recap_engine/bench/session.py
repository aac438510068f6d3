"""One run from start to end: calibrate, warm up, measure case by case, and take up where an earlier run stopped."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

from recap_engine.bench.calibrate import FINDERS
from recap_engine.bench.lanes import LANES, Kind, Plan
from recap_engine.bench.results import Folder, Measurement, Setting
from recap_engine.bench.runner import Runner, StoppedError
from recap_engine.bench.suites import Case, Suite, in_turn
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.request import Request
from recap_engine.settings import Settings

REWARMED = 7  # finished cases run again, unmeasured, to warm the memories when a run is taken up
MEASURED = "cases"
WARMING = "questions that warm the memories"
FITTING = "runs that fit the budget of {}"


@dataclass(frozen=True)
class Progress:
    """How far a stage of the run is."""

    what: str  # MEASURED, or what comes before it: FITTING with a lane, WARMING
    done: int
    total: int
    left_s: float  # of this stage, estimated

    @classmethod
    def after(cls, what: str, done: int, total: int, start: float, before: int = 0) -> "Progress":
        """`start`: when the first of them began, on `perf_counter`'s clock; `before`: how many were done by then."""
        return cls(what, done, total, (perf_counter() - start) / (done - before) * (total - done))

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.left_s), 60)
        return f"{self.done} of {self.total} {self.what}, about {minutes}:{seconds:02} left"


@dataclass
class Session:
    """A run; what it measures is in `measurements`, and line by line in `folder`.

    Raises RecapError for an unknown lane, and for a folder that holds a run under another `setting`.
    """

    engine: Engine
    suites: Sequence[Suite]
    lanes: Sequence[str]  # names; "ar" joins them
    settings: Settings  # unrecorded
    setting: Setting
    cold: bool = False  # empty the memories before each request
    most_turns: int | None = None
    most_cases: int | None = None  # all suites together
    folder: Folder | None = None
    kinds: Mapping[str, Kind] = field(default_factory=lambda: LANES)  # what `lanes` names
    stopped: Callable[[], bool] = lambda: False  # looked at between two runs of a lane; ends the run there
    measurements: list[Measurement] = field(default_factory=list)

    def __post_init__(self) -> None:
        if unknown := [name for name in self.lanes if name not in self.kinds]:
            raise RecapError(f"There is no lane {unknown[0]!r}; there are {', '.join(self.kinds)}.")
        if self.folder:
            self.setting, self.measurements = self.folder.resume(self.setting)

    def run(self) -> Iterator[Progress]:
        """Measure every case that isn't measured yet, with progress. Raises RecapError if none can be.

        Ends early, with the cases that are whole, once `stopped` says so.
        """
        try:
            yield from self._run()
        except StoppedError:
            self.setting.note("stopped before all cases were measured")

    def _run(self) -> Iterator[Progress]:
        cases = in_turn(suite.cases for suite in self.suites)[: self.most_cases]
        runner = yield from self._runner(cases)
        finished = self._finished(cases, runner)
        left = [(number, case) for number, case in enumerate(cases) if case not in finished]
        if finished and left:
            self.setting.note(f"taken up after {len(finished)} of {len(cases)} cases")
        if not left:
            return
        yield from self._warm_memories(runner)
        for case in [] if self.cold else finished[-REWARMED:]:
            runner.case(case, 0, self.most_turns)
        self.setting.note(f"load when it began: {_load()}")
        if self.folder:
            self.folder.begin(self.setting, self.measurements)
        start = perf_counter()
        before = len(cases) - len(left)
        for done, (number, case) in enumerate(left, start=before + 1):
            try:
                measured = runner.case(case, number, self.most_turns)
            except RecapError as error:
                self.setting.note(f"{case.suite} {case.name} is left out: {error}")
                measured = []
            self.measurements += measured
            if self.folder:
                self.folder.add(measured)
            yield Progress.after(MEASURED, done, len(cases), start, before)
        if not self.measurements:
            raise RecapError(f"Nothing was measured. {self.setting.notes[-1]}")
        self.setting.note(f"load when it ended: {_load()}")

    def _warm_memories(self, runner: Runner) -> Iterator[Progress]:
        """Let hot memories serve the suites' earlier questions; progress after each."""
        earlier, start = self._earlier, perf_counter()
        for count, case in enumerate(earlier, start=1):
            with suppress(RecapError):  # one that can't be asked is not missed
                runner.remember(case)
            yield Progress.after(WARMING, count, len(earlier), start)
        if earlier:
            self.setting.note(f"memories had served {len(earlier)} other questions")

    @property
    def _earlier(self) -> list[Case]:
        return [] if self.cold else in_turn(suite.earlier for suite in self.suites)

    def _runner(self, cases: Sequence[Case]) -> Generator[Progress, None, Runner]:
        """Fit budgets, build the lanes, run each once."""
        self._share_step_cost()
        names = [name for name in self.kinds if name in self.lanes or name == "ar"]
        held = [request for suite in self.suites for case in suite.calibration if (request := self._ask(case))]
        budgets = self.setting.budgets
        for name in [name for name in names if name in FINDERS and name not in budgets]:
            if held:
                budgets[name] = yield from self._fit(name, held)
            else:
                names.remove(name)
                self.setting.note(f"{name} is left out: all questions are measured, so none can fit its budget")
        plan = Plan(self.engine, self.settings, budgets)
        runner = Runner(self.engine, {name: self.kinds[name].build(plan) for name in names}, self.cold, self.stopped)
        request = next(filter(None, [*held[:1], *map(self._ask, cases[:1])]), None)
        for sentence in runner.warm_up(request) if request else []:
            self.setting.note(sentence)
        self.setting.lanes = {name: self.kinds[name].about for name in runner.lanes}
        return runner

    def _fit(self, name: str, held: Sequence[Request]) -> Generator[Progress, None, int]:
        """Find a lane's budget on the requests that are `held` back for it."""
        earlier = self._earlier
        requests = filter(None, map(self._ask, earlier)), held
        finder, budget, start = FINDERS[name], 0, perf_counter()
        total = len(earlier) + len(held) * finder.runs
        for done, found in enumerate(finder.find(self.engine, *requests, self.settings, self.cold), start=1):
            budget = found
            if self.stopped():
                raise StoppedError
            yield Progress.after(FITTING.format(name), done, total, start)
        return budget

    def _share_step_cost(self) -> None:
        """Keep the measured curve with the results; a run that is taken up goes on under the curve it began with."""
        if self.setting.cost:
            self.engine.step_cost = self.setting.cost
        else:
            self.setting.cost = self.engine.step_cost

    def _ask(self, case: Case) -> Request | None:
        """The case's first turn; None if it can't be asked, which is told when it is measured."""
        try:
            return self.engine.prepare(case.questions[0], case.picture())
        except RecapError:
            return None

    def _finished(self, cases: Sequence[Case], runner: Runner) -> list[Case]:
        """The cases that an earlier run measured with every lane; what it left half done is dropped."""
        found = {(*m.request, m.lane) for m in self.measurements}
        finished = []
        for case in cases:
            turns = range(1, 1 + len(case.questions[: self.most_turns]))
            if all((case.suite, case.name, turn, lane) in found for turn in turns for lane in runner.lanes):
                finished.append(case)
        kept = {(case.suite, case.name) for case in finished}
        self.measurements = [m for m in self.measurements if m.request[:2] in kept]
        return finished


def _load() -> str:
    """Processes that want to run, the mean of the last minute."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors" if hasattr(os, "getloadavg") else "unknown"
