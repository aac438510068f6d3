"""Whose persistent memories a request uses: everybody's, or the visitor's own; and everybody's kept across restarts.

What a memory holds was predicted for somebody. With the scope `session` a visitor's requests draft from, and add to,
memories that nobody else's do, so nothing of one visitor shows in another's inspector or timing.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recap_engine.errors import RecapError

if TYPE_CHECKING:
    from recap_engine.engine import Engine
    from recap_engine.memory import TokenMemory

SHARED, SESSION = SCOPES = ("shared", "session")
MOST_VISITORS = 256  # whose memories are kept at once, in the scope `session`; who came longest ago goes first
MOST_RECORDS = 1_000_000  # that the visitors' memories hold together
SAVE_INTERVAL_S = 60.0  # shortest time between two times that the shared memories are saved after a request
log = logging.getLogger(__name__)


def scope_wanted(given: str | None = None) -> str:
    """The scope that is given, or RECAP_MEMORY_SCOPE, or what suits: `session` on a Space, else `shared`.

    Raises RecapError for a scope that there is not.
    """
    scope = given or os.environ.get("RECAP_MEMORY_SCOPE") or (SESSION if os.environ.get("SPACE_ID") else SHARED)
    if scope not in SCOPES:
        raise RecapError(f"The memory scope must be {SHARED} or {SESSION}.")
    return scope


class Memories:
    """Finds the memories for a request. Holds no model: one that was swapped can go, and its memories go with it."""

    def __init__(self, scope: str = SHARED, path: str | Path | None = None) -> None:
        """`path` is the file that keeps the memories across restarts; it has no use in the scope `session`."""
        self.scope = scope
        self.path = Path(path) if path and scope == SHARED else None
        self.problem = ""  # why the shared memories are not kept in the file, in one sentence
        self._own: OrderedDict[str, dict[str, TokenMemory]] = OrderedDict()  # by visitor, the latest last
        self._engine: weakref.ref[Engine] | None = None  # whose memories these are
        self._shared: tuple[dict[str, TokenMemory], Any] | None = None  # and what a file of them is bound to
        self._foreign = False  # the file is another model's, or damaged: it stays as it is
        self._changed = False
        self._saved_at = time.monotonic()
        self._lock = threading.RLock()

    def engine(self, engine: Engine, visitor: str | None) -> Engine:
        """The engine for a request of `visitor`, whom gradio knows by a session; one without gets empty memories."""
        with self._lock:
            self._adopt(engine)
            self._changed = True
            return engine if self.scope == SHARED else engine.apart(self._of(engine, visitor))

    def view(self, engine: Engine, visitor: str | None) -> dict[str, TokenMemory]:
        """The memories that the next request of `visitor` begins with, to look at."""
        with self._lock:
            self._adopt(engine)
            own = self._own.get(visitor or "")
            return engine.memories if self.scope == SHARED else own or engine.apart().memories

    def leave(self, visitor: str | None) -> None:
        """Forget what is a visitor's own."""
        with self._lock:
            self._own.pop(visitor or "", None)

    def keep(self, now: bool = False) -> None:
        """Save the shared memories if there is a file for them and something new, at intervals or `now`."""
        with self._lock:
            due = now or time.monotonic() - self._saved_at >= SAVE_INTERVAL_S
            if not (self.path and self._shared and self._changed and due) or self._foreign:
                return
            from recap_engine import memory_file  # only now, as a page that shows a trace needs no tensors

            self._saved_at, self._changed = time.monotonic(), False
            try:
                memory_file.save(self.path, *self._shared)
                self.problem = ""
            except RecapError as error:
                self.problem, self._changed = str(error), True
                log.warning("%s", error)

    def keep_at_exit(self) -> None:
        """Save when the program ends."""
        atexit.register(self.keep, now=True)

    def _of(self, engine: Engine, visitor: str | None) -> dict[str, TokenMemory] | None:
        """A visitor's own memories, made when first needed; None for a caller without a session."""
        if not visitor:
            return None
        own = self._own.setdefault(visitor, engine.apart().memories)
        self._own.move_to_end(visitor)
        sizes = {name: sum(map(_records, memories.values())) for name, memories in self._own.items()}
        while len(self._own) > 1 and (len(self._own) > MOST_VISITORS or sum(sizes.values()) > MOST_RECORDS):
            longest_ago, _ = self._own.popitem(last=False)
            del sizes[longest_ago]
        return own

    def _adopt(self, engine: Engine) -> None:
        """Begin with an engine that was not here before: its memories come from the file, and nobody has own ones."""
        if self._engine is not None and self._engine() is engine:
            return
        self.keep(now=True)
        self._own.clear()
        self._engine, self._shared = weakref.ref(engine), None
        self.problem, self._foreign, self._changed = "", False, False
        if self.path is None:
            return
        self._shared = engine.memories, engine.binding
        if not self.path.exists():
            return
        try:
            engine.load_memories(self.path)
        except RecapError as error:
            self._foreign = True
            self.problem = f"{error} The file {self.path.name} stays as it is, and these memories end with the program."
            log.warning("%s", self.problem)


def _records(memory: TokenMemory) -> int:
    return sum(map(len, memory.tables.values()))
