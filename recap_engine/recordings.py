"""Records the traces that the lesson and a page without a model open: `python -m recap_engine record`.

Unchosen: of each family the first demo seed whose answer is long enough for a few trees. The memories are warm, as
after some use of the page: before a recording, every lane answers about the family's next pictures, so one-token keys
hold what was said of other pictures. A second turn comes with the first one, as the model answered it, as its history.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from recap_engine.engine import LANES, Engine
from recap_engine.models.prompting import Turn
from recap_engine.request import Request
from recap_engine.scenes.examples import Example, suite
from recap_engine.settings import Settings
from recap_engine.trace import RequestTrace

FOLDER = Path(__file__).parents[1] / "assets" / "traces"
RECORDED = {"description": "description", "table": "table", "two-turn": "two_turn"}  # file name: family
ENOUGH = 100  # characters of the true answer
WARM_UP = 4  # other pictures that every lane answers about first


def record(engine: Engine, settings: Settings, folder: Path = FOLDER) -> Iterator[Path]:
    """Write `NAME.json.gz` and the picture `NAME.png` of each of RECORDED; yields the traces' paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, family in RECORDED.items():
        example, *others = _long_examples(family, 1 + WARM_UP)
        own = engine.apart()
        for other in others:
            _answer_all(own, other, settings)
        path = folder / f"{name}.json.gz"
        trace, request = _answer_all(own, example, settings)
        trace.sensitivity = own.sensitivity(request, trace.lanes["ar"].tokens)
        trace.save(path)
        example.picture.save(path.with_name(f"{name}.png"), optimize=True)
        yield path


def _long_examples(family: str, count: int) -> list[Example]:
    examples = (example for example in suite(family, 1000, "demo") if len(example.turns[-1][1]) >= ENOUGH)
    return list(islice(examples, count))


def _answer_all(engine: Engine, example: Example, settings: Settings) -> tuple[RequestTrace, Request]:
    """All lanes on every turn of the example; the last turn's trace and request."""
    history: list[Turn] = []
    for question, _ in example.turns:
        request = engine.prepare(question, example.picture, history)
        lanes = [engine.answer(request, lane, settings) for lane in LANES]
        history.append((question, lanes[0].text))
    return engine.trace(request, lanes, settings), request
