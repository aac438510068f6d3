"""Many visitors at once: nobody is lost or mixed up, everyone sees a place in the queue, and memory stays flat.

`pytest -m load` runs the long one: 50 visitors, ten a minute, then 200 more requests.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pytest
from server import Server, Visitor, served

from recap_engine.engine import Engine
from recap_engine.models.loading import EMBEDDED
from recap_engine.scenes import FAMILIES, make_example
from recap_engine.settings import Settings

pytestmark = pytest.mark.skipif(not EMBEDDED.is_dir(), reason="there is no embedded model")
LANES = ["ar", "recap"]


class Question:
    """A drawn picture, its question, and the answer that is computed alone."""

    def __init__(self, seed: int, limit: int) -> None:
        self.picture, self.limit = BytesIO(), limit
        example = make_example(FAMILIES[seed % len(FAMILIES)], seed, split="demo")
        example.picture.save(self.picture, "PNG")
        self.question = example.turns[0][0]

    def alone(self, engine: Engine) -> str:
        request = engine.prepare(self.question, self.picture.getvalue())
        return engine.answer(request, "ar", Settings(max_new_tokens=self.limit)).text


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(device="cpu")


class Crowd:
    """Visitors who come `together`, and `pause_s` later the next: what they were told, in which order they ended."""

    def __init__(self, server: Server, questions: list[Question], together: int, pause_s: float = 0.0) -> None:
        self.joined: list[int] = []
        self.ended: list[int] = []
        self.texts: dict[int, str] = {}
        self.places: dict[int, list[int]] = {}
        self.order = threading.Lock()
        self.server, self.questions = server, questions
        self.together, self.pause_s = together, pause_s
        with ThreadPoolExecutor(len(questions)) as pool:
            list(pool.map(self.visit, range(len(questions))))

    def visit(self, number: int) -> None:
        time.sleep(number // self.together * self.pause_s)
        asked = self.questions[number]
        visitor = Visitor(self.server.url, f"visitor-{number}-{random.random()}")
        picture = visitor.upload(asked.picture.getvalue())
        with self.order:
            visitor.join(picture, asked.question, LANES, asked.limit)
            self.joined.append(number)
        told = list(visitor.events())
        with self.order:
            self.ended.append(number)
        assert told[-1]["success"], told[-1]
        text, lanes, _ = told[-1]["output"]["data"]
        assert all(lane["identical"] for lane in lanes)
        self.texts[number] = text
        self.places[number] = [event["rank"] for event in told if event["msg"] == "estimation"]

    def check(self, engine: Engine) -> None:
        """Nobody lost, nobody mixed up, first come first served, and who waited saw a place that only got better."""
        everyone = range(len(self.questions))
        assert sorted(self.ended) == list(everyone)
        assert self.texts == {number: self.questions[number].alone(engine) for number in everyone}
        late = [abs(self.joined.index(number) - self.ended.index(number)) for number in everyone]
        assert max(late) <= 1, "two that end within a moment may be heard of in either order"
        for places in self.places.values():
            assert places and places == sorted(places, reverse=True)


def test_visitors_at_once_are_all_answered_in_their_order_each_with_its_own_answer(server, engine):
    crowd = Crowd(server, [Question(seed, limit=12) for seed in range(5)], together=5)
    crowd.check(engine)
    assert max(max(places) for places in crowd.places.values()) >= 1, "somebody waited"


def busy_for(visitor: Visitor, picture: dict, limit: int = 16) -> float:
    """How long a newcomer waits for the model, in seconds."""
    visitor.join(picture, "What is it?", ["ar"], limit)
    start = time.monotonic()
    for event in visitor.events():
        if event["msg"] == "process_starts":
            waited = time.monotonic() - start
    return waited


def test_a_visitor_who_leaves_frees_the_model(server):
    """The one who left had asked for 512 tokens in three lanes, many seconds; the next does not wait for them."""
    picture = Question(0, 0).picture.getvalue()
    leaving, next_one = (Visitor(server.url, f"{name}-{random.random()}") for name in ("leaving", "next"))
    uploaded = next_one.upload(picture)
    whole = time.monotonic()
    next_one.answer(uploaded, "Describe it in detail.", ["ar", "tr", "recap"], limit=512)
    whole = time.monotonic() - whole
    leaving.join(leaving.upload(picture), "Describe it in detail.", ["ar", "tr", "recap"], limit=512)
    events = leaving.events()
    while next(events)["msg"] != "process_generating":
        pass
    events.close()
    assert busy_for(next_one, uploaded) < whole / 2


def test_one_who_leaves_while_waiting_is_not_answered(server):
    picture = Question(0, 0).picture.getvalue()
    first, leaving, last = (Visitor(server.url, f"{name}-{random.random()}") for name in ("first", "leaving", "last"))
    uploaded = first.upload(picture)
    first.join(uploaded, "Describe it in detail.", ["ar", "tr", "recap"], limit=256)
    answered = first.events()
    while next(answered)["msg"] != "process_starts":
        pass
    leaving.join(uploaded, "Describe it in detail.", ["ar"], limit=256)
    line = leaving.events()
    assert next(line)["rank"] == 0
    line.close()
    last.join(uploaded, "What is it?", ["ar"])
    told = list(last.events())
    assert told[-1]["success"]
    assert [event["rank"] for event in told if event["msg"] == "estimation"][-1] == 0
    assert list(answered)[-1]["success"]


@pytest.mark.load
def test_fifty_visitors_over_five_minutes_and_two_hundred_requests_more(server, engine):
    questions = [Question(seed, limit=64) for seed in range(50)]
    start = time.monotonic()
    crowd = Crowd(server, questions, together=10, pause_s=60)
    took = time.monotonic() - start
    crowd.check(engine)

    sizes = []
    for number in range(210):
        visitor = Visitor(server.url, f"later-{number}")
        asked = questions[number % len(questions)]
        visitor.answer(visitor.upload(asked.picture.getvalue()), asked.question, LANES, limit=32)
        sizes.append(server.memory())
    print(f"\n50 visitors in {took:.0f} s, longest queue {max(max(places) for places in crowd.places.values()) + 1};")
    print(f"memory after 10 more requests {sizes[9] / 2**20:.0f} MiB, after 210 {sizes[-1] / 2**20:.0f} MiB,")
    print(f"most {max(sizes) / 2**20:.0f} MiB")
    assert max(sizes[10:]) <= 1.05 * sizes[9]
