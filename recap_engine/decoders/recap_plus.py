"""RECAP+: this project's variant of RECAP, which remembers for longer, and what it was told.

- Two- and three-token keys persist across requests, as one-token keys do, and as there a new record is blended with the
  one that its key holds. They do mix what was seen under different images, which RECAP avoids; blended, they pay for it
  with what is the same under all of them, the language. A three-token key learns only from what was said, as one that
  ends in a rejected node seldom comes again.
- Under long keys the prompt's own next words count as if the target had predicted them: answers repeat their questions,
  summaries their texts. Prompt-lookup decoding (Saxena, 2023) proposes nothing else.

The first won on pictures that nothing else is measured on, the second in a replay of a language model's logged answers.
"""

from collections.abc import Container, Iterable

from recap_engine.blending import blend_into, latest, said
from recap_engine.decoders.recap import Recap
from recap_engine.memory import Record, RequestMemory, TokenMemory, prompt_words
from recap_engine.settings import Settings
from recap_engine.stepcost import StepCost
from recap_engine.target import Prefill, Reading
from recap_engine.tree import Context


class RecapPlus(Recap):
    """RECAP without a memory that ends with its request."""

    name = "recap+"

    def __init__(
        self, memory: TokenMemory, cost: StepCost, settings: Settings, stops: Container[int], picture: str | None = None
    ) -> None:
        super().__init__(memory, cost, settings, stops, picture)
        self.longer = memory

    def seed(self, prefill: Prefill, reading: Reading) -> None:
        """The prompt's words first, so that what the target itself said there is the later part of a blend."""
        remember_words(self.longer, prefill, self.request)
        super().seed(prefill, reading)

    def remember(self, found: Iterable[tuple[Context, Record]]) -> None:
        """Three-token keys learn from accepted positions alone, which is a third less to blend."""
        memory = self.token_memory
        one, two, three = latest(found)
        blend_into((memory.rows, one), (memory.pairs, two), (memory.triples, said(three)))

    def end(self) -> None:
        """Nothing is dropped; `TokenMemory.trim` keeps to the bounds."""


def remember_words(longer: TokenMemory | RequestMemory, prefill: Prefill, request: int) -> None:
    """Blend the prompt's own next words into what two- and three-token keys hold."""
    _, two, three = latest(prompt_words(prefill.tokens, prefill.text_positions, request))
    blend_into((longer.pairs, two), (longer.triples, three))
