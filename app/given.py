"""What came with a press of Run or an API call, checked: the page sends sound values, any other client any value."""

from __future__ import annotations

from typing import Any

from app import texts
from app.lanes import Ask
from app.marks import LANES
from recap_engine.errors import RecapError
from recap_engine.settings import Settings


def read_ask(question: Any, picture: Any, lanes: Any, limit: Any, budget: Any, turn: int = 0) -> Ask:
    """One press of Run. Raises RecapError, in a sentence, for whatever cannot be one."""
    if not isinstance(question, str) or not isinstance(picture, str | None):
        raise RecapError("A question is text, and its picture a file.")
    chosen = lanes if isinstance(lanes, list | tuple) else [lanes]
    if not all(isinstance(name, str) and name in LANES for name in chosen):
        raise RecapError(f"A lane is one of {', '.join(LANES)}.")
    if not chosen:
        raise RecapError(texts.NO_LANES)
    settings = Settings(_whole(limit), "auto" if budget == "auto" else _whole(budget))
    return Ask(question, picture, chosen, settings, turn)


def _whole(number: Any) -> Any:
    """Sliders send whole numbers as floats too; all else goes on as it is, for `Settings` to refuse."""
    return int(number) if isinstance(number, float) and number.is_integer() else number
