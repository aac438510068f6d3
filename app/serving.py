"""The engine at hand, and how far another is that is loaded to take its place. One for the whole program."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TYPE_CHECKING

from app import texts
from app.wiring import sentence
from recap_engine.errors import RecapError

if TYPE_CHECKING:
    from recap_engine.engine import Engine  # needs torch, which a page without a model can do without

Downloaded = Callable[[int, int], None]  # bytes that are here, bytes in all


class NoModelError(RecapError):
    """There is no model on purpose: the page was started to show a saved trace, or loading was cancelled."""


@dataclass(frozen=True)
class Wish:
    """A model that someone asks for."""

    name: str | None = None  # of the Hub, or a folder's path; None is the embedded one
    device: str = "auto"
    dtype: str = "auto"


@dataclass
class Job:
    """One model on its way."""

    wish: Wish
    here: int = 0  # bytes
    whole: int = 0  # bytes; 0 until a download begins
    cancelled: bool = False

    def follow(self, here: int, whole: int) -> None:
        """Hears of the download's bytes, from its threads; raising ends it. What is here is kept for another time."""
        self.here, self.whole = max(here, self.here), whole
        if self.cancelled:
            raise NoModelError("This download was cancelled.")


@dataclass(frozen=True)
class Status:
    """What there is at one moment. A problem is why the latest model could not be loaded."""

    engine: Engine | None
    job: Job | None
    problem: RecapError | None

    @property
    def state(self) -> str:
        """ready, loading (the first model), failed, or off (there is none on purpose)."""
        if self.engine:
            return "ready"
        if self.job:
            return "loading"
        return "failed" if self.problem and not isinstance(self.problem, NoModelError) else "off"


def load_engine(wish: Wish, follow: Downloaded) -> Engine:
    """Load what is wished for, torch included. Raises RecapError."""
    from recap_engine.engine import Engine

    return Engine.load(wish.name, wish.device, wish.dtype, follow)


class Serving:
    """Hands out the engine; loads another in a thread of its own, and swaps the two only if that worked.

    A run asks for the engine when it starts and keeps it to its end, so it never sees a swap.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        problem: RecapError | None = None,
        load: Callable[[Wish, Downloaded], Engine] = load_engine,
    ) -> None:
        self._engine = engine
        self._problem = problem
        self._load = load
        self._job: Job | None = None
        self._changed = Condition()

    @property
    def status(self) -> Status:
        with self._changed:
            return Status(self._engine, self._job, self._problem)

    def engine(self) -> Engine:
        """The engine at hand; waits for the first one while it is loaded. Raises why there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._engine is not None or self._job is None)
            if self._engine is None:
                raise self._problem or NoModelError(texts.NO_MODEL)
            return self._engine

    def load(self, wish: Wish) -> None:
        """Begin to load a model and return at once. Raises RecapError while another is on its way."""
        with self._changed:
            if self._job:
                raise RecapError("Another model is being loaded; wait for it, or cancel it first.")
            self._job = Job(wish)
            self._problem = None
            Thread(target=self._work, args=(self._job,), name="loading", daemon=True).start()

    def cancel(self) -> None:
        """Give up the model on its way; the one at hand stays."""
        with self._changed:
            if self._job:
                self._job.cancelled = True
                self._end(problem=NoModelError("Loading was cancelled; what was downloaded is kept for another time."))

    def _work(self, job: Job) -> None:
        engine: Engine | None = None
        problem: RecapError | None = None
        free_unused()
        try:
            engine = self._load(job.wish, job.follow)
        except RecapError as error:
            problem = error
        except Exception as error:
            problem = RecapError(sentence(error))
        with self._changed:
            if job is self._job:
                self._end(engine, problem)
        del engine
        free_unused()

    def _end(self, engine: Engine | None = None, problem: RecapError | None = None) -> None:
        """With the lock held: nothing is on its way any more, and whoever waits may go on."""
        self._job, self._problem = None, problem
        self._engine = engine or self._engine
        self._changed.notify_all()


def free_unused() -> None:
    """Give the memory of models that nobody uses any more back to the device."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()
