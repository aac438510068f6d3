"""Made-up traces and an engine that plays them, for the page's tests. Trees obey the rules of acceptance."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from math import exp

from recap_engine.decode import Progress
from recap_engine.errors import RecapError
from recap_engine.memory import Record, TokenMemory, verified_records
from recap_engine.recorder import Recorder
from recap_engine.settings import Settings
from recap_engine.target import Reading
from recap_engine.trace import PERSISTENT, LaneTrace, RequestTrace, Sensitivity, StepTrace, Written
from recap_engine.tree import CandidateTree, Proposal
from recap_engine.weighting import WEIGHTINGS, fuse

WORDS = (
    " red| blue| green| circle| square| triangle| small| big| left| right| of| the| a| is| and|.|,| bar| shows|"
    " highest| sign| says| total|\n|\n\n|ing|s| 12| 7| two| three| receipt| <b>| column| row| above"
).split("|")
TOKEN_TEXT = dict(enumerate(WORDS))
TOP_K, DEEPEST = 8, 10
IMAGE_SHA = "0" * 64


def make_record(rng: random.Random, written: Written, best: int | None = None) -> Record:
    """A record of random tokens, `best` first."""
    others = [token for token in rng.sample(range(len(WORDS)), TOP_K + 1) if token != best]
    tokens = ([] if best is None else [best]) + others
    logits = sorted((rng.gauss(0, 2) for _ in range(TOP_K + 1)), reverse=True)
    total = sum(map(exp, logits))
    probabilities = [exp(logit) / total for logit in logits[:TOP_K]]
    return Record(tokens[:TOP_K], probabilities, rng.uniform(0.02, 0.6), written)


def make_proposal(rng: random.Random, written: list[Record], scopes: dict[int, str]) -> Proposal:
    """What the orders of `scopes` recall: records `written` before; persistent ones some of another picture's too."""
    request = written[0].written[0]

    def recall(order: int) -> Record:
        if scopes[order] == PERSISTENT and rng.random() < 0.3:
            return make_record(rng, (rng.randrange(1, request), rng.randrange(-1, 9), rng.random() < 0.5))
        return rng.choice(written)

    if len(scopes) == 1:
        row = recall(1)
        return Proposal(list(zip(row.tokens, row.chances, strict=True)), (row, None, None), (1.0, 0.0, 0.0))
    one, two, three = (recall(order) if rng.random() < 0.7 or order == 1 else None for order in (1, 2, 3))
    return fuse((one, two, three), WEIGHTINGS["entropy-confidence"])


def make_step(nodes: int, lane: LaneTrace, recorder: Recorder, written: list[Record], rng: random.Random) -> StepTrace:
    """A recorded step of a tree of `nodes` nodes; `written` are the request's records so far, to which it adds."""
    tree = CandidateTree((0, 0, lane.tokens[-1]))
    proposals: dict[int, Proposal] = {}
    children: dict[int, list[int]] = {}
    while len(tree) < nodes:
        parent = rng.randrange(-1, len(tree)) if rng.random() < 0.6 else len(tree) - 1
        if parent not in proposals:
            proposals[parent] = make_proposal(rng, written, lane.scopes)
        proposal = proposals[parent]
        rank = len(children.setdefault(parent, []))
        if rank >= min(TOP_K, len(proposal.candidates)) or (parent >= 0 and tree.depths[parent] >= DEEPEST):
            continue
        children[parent].append(tree.add(parent, *proposal.candidates[rank], proposal))
    accepted: list[int] = []
    while (below := children.get(accepted[-1] if accepted else -1)) and rng.random() < 0.75:
        accepted.append(rng.choice(below))
    path = [-1, *accepted]

    reading = Reading([])
    for row in range(1 + nodes):  # the target prefers the accepted child; elsewhere none of the candidates
        known = {tree.tokens[child] for child in children.get(row - 1, [])}
        best = rng.choice([token for token in range(len(WORDS)) if token not in known])
        if row - 1 in path[:-1]:
            best = tree.tokens[path[path.index(row - 1) + 1]]
        record = make_record(rng, (lane.request, lane.n_steps, row - 1 in path), best)
        reading.argmax.append(best)
        reading.tokens.append(record.tokens)
        reading.probabilities.append(record.probabilities)
        reading.entropy.append(record.entropy)
    for parent, token in zip(tree.parents, tree.tokens, strict=True):
        said = reading.tokens[parent + 1]
        rank = said.index(token) if token in said else rng.randrange(TOP_K, 40)
        reading.node_ranks.append(rank)
        reading.node_probabilities.append(reading.probabilities[parent + 1][rank] if rank < TOP_K else 1e-4)
    written += [record for _, record in verified_records(tree, reading, accepted, lane.request, lane.n_steps)]

    bonus = reading.argmax[path[-1] + 1]
    emitted = [*(tree.tokens[node] for node in accepted), bonus]
    step = StepTrace(lane.tokens[-1], lane.n_tokens - 1, bonus=bonus, emitted=emitted)
    recorder.add(step, tree, reading, accepted)
    sizes = len({record.tokens[0] for record in written}), len(written) // 2, len(written)
    step.memory = dict(
        zip(("order1", "order2", "order3"), sizes if 3 in lane.scopes else (sizes[0], 0, 0), strict=True)
    )
    return step


def make_lane(name: str, sizes: list[int], seed: int = 0, step_s: float = 0.02) -> LaneTrace:
    """A lane with one step per entry of `sizes`, the number of its nodes; AR's are all 0.

    It is the third request of its memory; the first two had other pictures.
    """
    rng = random.Random(seed)
    lane = LaneTrace(name, [3], "", 0.12, 0.0, 3, [], {}, "length", 0.0 if name == "ar" else 0.01)
    memory = TokenMemory()
    lane.request = 0 if name == "ar" else [memory.begin(picture) for picture in ("1" * 64, "2" * 64, IMAGE_SHA)][-1]
    recorder = Recorder(lane, None if name == "ar" else memory)
    written = [make_record(rng, (lane.request, -1, True)) for _ in range(20)]
    for number, nodes in enumerate(sizes, start=1):
        if name == "ar":
            token = rng.randrange(len(WORDS))
            step = StepTrace(lane.tokens[-1], lane.n_tokens - 1, bonus=token, emitted=[token])
            step.memory = {"order1": 0, "order2": 0, "order3": 0}
        else:
            step = make_step(nodes, lane, recorder, written, rng)
        step.draft_s, step.verify_s, step.accept_s, step.update_s = (
            0.1 * step_s,
            0.75 * step_s,
            0.02 * step_s,
            0.08 * step_s,
        )
        step.ended_s = number * step_s
        lane.steps.append(step)
        lane.tokens += step.emitted
    lane.text = "".join(WORDS[token] for token in lane.tokens)
    lane.decode_s = len(sizes) * step_s
    return lane


def make_trace(nodes: int = 24, steps: int = 12, plus: bool = False) -> RequestTrace:
    """A request answered by the three lanes, `plus` RECAP+. Their tokens differ: the answers are random."""
    rng = random.Random(3)
    lanes = [
        make_lane("ar", [0] * 3 * steps, step_s=0.012),
        make_lane("tr", [80] * steps, seed=1),
        make_lane("recap", [nodes] * steps, seed=2, step_s=0.016),
    ]
    if plus:
        lanes.append(make_lane("recap+", [nodes] * steps, seed=4, step_s=0.014))
    return RequestTrace(
        model="made-up",
        tokenizer_sha="0" * 64,
        question="What is in the picture?",
        history=[],
        image_sha=IMAGE_SHA,
        image_size=(448, 448),
        prompt_tokens=64,
        prompt_end=[12, 29],
        settings={},
        machine={},
        created="2026-11-20T12:00:00+00:00",
        lanes={lane.name: lane for lane in lanes},
        token_text=dict(TOKEN_TEXT),
        sensitivity=Sensitivity(
            [rng.expovariate(2) if rng.random() < 0.3 else rng.uniform(0, 0.02) for _ in lanes[0].tokens],
            [rng.random() < 0.2 for _ in lanes[0].tokens],
            "A made-up comparison.",
        ),
    )


class FakeRequest(str):
    """The question. Its picture is as large as a test says."""

    reduced: tuple = ()


class FakeEngine:
    """Plays a made-up trace, step by step, as the engine would; `step_s` of real time a step."""

    model_name, device, dtype = "made-up", "cpu", "torch.float32"
    step_cost = measured_cost = binding = None
    vocabulary = len(WORDS)

    def __init__(self, trace: RequestTrace | None = None, step_s: float = 0.0, fails_in: str = "") -> None:
        self.played = trace or make_trace(steps=6)
        self.found = self.played.sensitivity
        self.step_s = step_s
        self.fails_in = fails_in
        self.prepared: list[tuple[str, str | None]] = []
        self.ran: list[str] = []
        self.closed: list[str] = []
        self.memories = {name: TokenMemory() for name in ("tr", "recap", "recap+")}

    def prepare(self, question: str, image: str | None = None) -> FakeRequest:
        if not question.strip():
            raise RecapError("Please ask a question.")
        self.prepared.append((question, image))
        return FakeRequest(question)

    def run(self, request: str, lane: str, settings: Settings) -> Iterator[Progress]:
        self.ran.append(lane)
        played = self.played.lanes[lane]
        tokens = [played.first_token]
        try:
            yield self._progress(played, tokens, 0)
            for number, step in enumerate(played.steps, start=1):
                time.sleep(self.step_s)
                if lane == self.fails_in:
                    raise ZeroDivisionError("a fault in the engine")
                tokens += step.emitted
                yield self._progress(played, tokens, number)
        finally:
            self.closed.append(lane)

    def _progress(self, played: LaneTrace, tokens: list[int], number: int) -> Progress:
        step = played.steps[number - 1] if number else None
        done = number == len(played.steps)
        text = "".join(WORDS[token] for token in tokens)
        return Progress(
            lane=played.name,
            new_tokens=step.emitted if step else tokens[:],
            text=text,
            n_tokens=len(tokens),
            n_steps=number,
            elapsed_s=step.ended_s if step else 0.0,
            prefill_s=played.prefill_s,
            done=done,
            step=step,
            trace=played
            if done
            else replace(
                played,
                tokens=tokens[:],
                text=text,
                steps=played.steps[:number],
                decode_s=step.ended_s if step else 0.0,
                stopped="cancelled",
            ),
        )

    def trace(self, request: str, lanes: list[LaneTrace], settings: Settings) -> RequestTrace:
        return replace(self.played, lanes={lane.name: lane for lane in lanes}, sensitivity=None)

    def sensitivity(self, request: str, tokens: list[int]) -> Sensitivity | None:
        return self.found

    def apart(self, memories: dict[str, TokenMemory] | None = None) -> FakeEngine:
        other = copy(self)
        other.memories = memories or {name: TokenMemory() for name in self.memories}
        return other

    def clear_memories(self) -> None:
        for memory in self.memories.values():
            memory.clear()
