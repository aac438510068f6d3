"""How requests are run here: with whose persistent memories, and in which process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.forked import Forked, zero_gpu
from app.lanes import Ask, Moment, StopFlag, answer, look
from app.memory_scope import Memories
from app.serving import Serving

if TYPE_CHECKING:
    from recap_engine.engine import Engine
    from recap_engine.memory import TokenMemory
    from recap_engine.trace import Sensitivity


class Running:
    """Where the page's events meet the engine. One for the whole program."""

    def __init__(self, serving: Serving, memories: Memories | None = None) -> None:
        """Made before the page is served: a ZeroGPU Space looks then for what will ask it for a GPU."""
        self.serving = serving
        self.memories = memories or Memories()
        gpu = zero_gpu()
        self.forked = Forked(gpu) if gpu else None

    def answer(self, ask: Ask, stop: StopFlag, visitor: str | None) -> Iterator[Moment]:
        """Answer one request of `visitor`, who is a gradio session; see `lanes.answer`. Raises what it raises."""
        engine = self.memories.engine(self.serving.engine(), visitor)
        try:
            yield from self.forked.answer(engine, ask, stop) if self.forked else answer(engine, ask, stop)
        finally:
            self.memories.keep()

    def look(self, ask: Ask, tokens: list[int]) -> Sensitivity:
        """How much the picture matters to each token of an answer to `ask`. Raises RecapError."""
        engine = self.serving.engine()
        return self.forked.look(engine, ask, tokens) if self.forked else look(engine, ask, tokens)

    def view(self, visitor: str | None) -> tuple[Engine, dict[str, TokenMemory]]:
        """The engine, and the memories that the next request of `visitor` begins with."""
        engine = self.serving.engine()
        return engine, self.memories.view(engine, visitor)

    def own(self, visitor: str | None) -> Engine:
        """An engine with the memories of `visitor`, to empty, save or load them. Raises why there is none."""
        return self.memories.engine(self.serving.engine(), visitor)
