"""Made-up traces and an engine that plays them, for the page's tests. Trees obey the rules of acceptance."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace

from recap_engine.decode import Progress
from recap_engine.errors import RecapError
from recap_engine.settings import Settings
from recap_engine.trace import LaneTrace, RequestTrace, StepTrace

WORDS = (
    " red| blue| green| circle| square| triangle| small| big| left| right| of| the| a| is| and|.|,| bar| shows|"
    " highest| sign| says| total|\n|\n\n|ing|s| 12| 7| two| three| receipt| <b>| column| row| above"
).split("|")
TOKEN_TEXT = dict(enumerate(WORDS))


def make_step(nodes: int, root: tuple[int, int], rng: random.Random, orders: int = 3, deep: int = 10) -> StepTrace:
    """A step whose tree has `nodes` nodes; `root` is the last committed token and its index in the answer."""
    step = StepTrace(root_token=root[0], root_position=root[1])
    used: dict[int, set[int]] = {}
    while len(step.tokens) < nodes:
        parent = rng.randrange(-1, len(step.tokens)) if rng.random() < 0.6 else len(step.tokens) - 1
        depth = 1 if parent < 0 else step.depths[parent] + 1
        token = rng.randrange(len(WORDS))
        if depth > deep or token in used.setdefault(parent, set()) or len(used[parent]) >= 8:
            continue
        used[parent].add(token)
        fused = rng.uniform(0.05, 0.9)
        order = rng.randint(1, orders)
        shares = [0.0, 0.0, 0.0]
        agree = rng.choice((1, 1, 2)) if orders > 1 else 1
        shares[order - 1] = fused if agree == 1 else 0.7 * fused
        if agree > 1:
            shares[order % 3] = fused - shares[order - 1]
        step.parents.append(parent)
        step.depths.append(depth)
        step.tokens.append(token)
        step.fused.append(fused)
        step.path.append(fused if parent < 0 else fused * step.path[parent])
        step.shares.append((shares[0], shares[1], shares[2]))
        step.orders.append(order)
        step.agree.append(agree)
        step.target_probs.append(rng.random())
        step.target_ranks.append(rng.randrange(1, 40))
        step.written.append(tuple((1, rng.randrange(-1, 4), True) if share else None for share in shares))  # type: ignore[arg-type]
    at = -1
    while (below := [node for node, parent in enumerate(step.parents) if parent == at]) and rng.random() < 0.75:
        at = rng.choice(below)
        step.accepted.append(at)
        step.target_ranks[at] = 0
    reached = {-1, *step.accepted}
    step.decisions = [
        "accepted" if node in reached else "rejected" if parent in reached else "unreached"
        for node, parent in enumerate(step.parents)
    ]
    step.bonus = rng.randrange(len(WORDS))
    step.emitted = [*(step.tokens[node] for node in step.accepted), step.bonus]
    step.margins = [rng.uniform(0.1, 9) for _ in step.emitted]
    return step


def make_lane(name: str, sizes: list[int], seed: int = 0, step_s: float = 0.02) -> LaneTrace:
    """A lane with one step per entry of `sizes`, the number of its nodes; AR's are all 0."""
    rng = random.Random(seed)
    tokens, steps = [3], []
    for number, nodes in enumerate(sizes, start=1):
        step = make_step(nodes, (tokens[-1], len(tokens) - 1), rng, orders=1 if name == "tr" else 3)
        step.draft_s, step.verify_s, step.accept_s, step.update_s = (
            0.1 * step_s,
            0.75 * step_s,
            0.02 * step_s,
            0.08 * step_s,
        )
        step.ended_s = number * step_s
        steps.append(step)
        tokens += step.emitted
    text = "".join(WORDS[token] for token in tokens)
    return LaneTrace(
        name, tokens, text, 0.12, len(sizes) * step_s, 3, steps, {}, "length", 0.0 if name == "ar" else 0.01
    )


def make_trace(nodes: int = 24, steps: int = 12) -> RequestTrace:
    """A request answered by the three lanes. Their tokens differ: the answers are random."""
    lanes = [
        make_lane("ar", [0] * 3 * steps, step_s=0.012),
        make_lane("tr", [80] * steps, seed=1),
        make_lane("recap", [nodes] * steps, seed=2, step_s=0.016),
    ]
    return RequestTrace(
        model="made-up",
        tokenizer_sha="0" * 64,
        question="What is in the picture?",
        image_sha=None,
        image_size=(448, 448),
        prompt_tokens=64,
        settings={},
        machine={},
        created="2026-11-20T12:00:00+00:00",
        lanes={lane.name: lane for lane in lanes},
        token_text=dict(TOKEN_TEXT),
    )


class FakeEngine:
    """Plays a made-up trace, step by step, as the engine would; `step_s` of real time a step."""

    model_name, device, dtype = "made-up", "cpu", "torch.float32"
    step_cost = None

    def __init__(self, trace: RequestTrace | None = None, step_s: float = 0.0, fails_in: str = "") -> None:
        self.played = trace or make_trace(steps=6)
        self.step_s = step_s
        self.fails_in = fails_in
        self.prepared: list[tuple[str, str | None]] = []
        self.ran: list[str] = []
        self.closed: list[str] = []

    def prepare(self, question: str, image: str | None = None) -> str:
        if not question.strip():
            raise RecapError("Please ask a question.")
        self.prepared.append((question, image))
        return question

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
        return Progress(
            lane=played.name,
            new_tokens=step.emitted if step else tokens[:],
            text="".join(WORDS[token] for token in tokens),
            n_tokens=len(tokens),
            n_steps=number,
            elapsed_s=step.ended_s if step else 0.0,
            prefill_s=played.prefill_s,
            done=done,
            step=step,
            trace=played if done else None,
        )

    def trace(self, request: str, lanes: list[LaneTrace], settings: Settings) -> RequestTrace:
        return replace(self.played, lanes={lane.name: lane for lane in lanes})

    def clear_memories(self) -> None:
        pass
