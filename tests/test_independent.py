"""Sources, weights and shares of real runs, worked out a second time by a slow and simple implementation.

It shares no code with the engine: own dictionaries keyed by token tuples, own keys from the prompt and the answer, own
fusion from the formula that `weighting` documents, own records of the prompt from the stock model's forward pass. What
the target said at the rows of a step is taken from the trace, and checked against the stock model where it is cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from recap_engine.blending import LATER, SURE
from recap_engine.engine import Engine
from recap_engine.scenes import make_example
from recap_engine.settings import Settings
from recap_engine.target import MOST_SEEDS
from recap_engine.weighting import LENGTH, TEMPER

SETTINGS = Settings(max_new_tokens=56, budget=24)
TOP_K = {"tr": 8, "recap": SETTINGS.top_k, "recap+": SETTINGS.top_k}
SEEDS = (7000, 7001)  # two requests with different pictures: the second finds the first one's one-token records


@dataclass
class Said:
    """What the target said somewhere: its best tokens with their probabilities, entropy over ln|V|, and when."""

    tokens: list[int]
    probabilities: list[float]
    entropy: float
    written: tuple[int, int, bool]

    def chance(self, token: int) -> float:
        """Tempered: p^TEMPER over the sum of the same."""
        if token not in self.tokens:
            return 0.0
        return self.probabilities[self.tokens.index(token)] ** TEMPER / sum(p**TEMPER for p in self.probabilities)


@dataclass
class Run:
    """One recorded request."""

    prompt: list[int]
    placeholder: int
    logits: torch.Tensor  # [prompt + answer, V], of the stock model
    lane: object


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Run]]:
    engine = Engine.load(dtype="float32")
    recorded: dict[str, list[Run]] = {"tr": [], "recap": [], "recap+": []}
    for seed in SEEDS:
        example = make_example("description", seed, "bench")
        request = engine.prepare(example.turns[0][0], example.picture)
        prompt = request.inputs["input_ids"][0].tolist()
        for name, so_far in recorded.items():
            lane = engine.answer(request, name, SETTINGS)
            logits = stock_logits(engine, request.inputs, lane.tokens)
            so_far.append(Run(prompt, engine.target.model.config.image_token_id, logits, lane))
    return recorded


@torch.inference_mode()
def stock_logits(engine: Engine, inputs: dict[str, torch.Tensor], answer: list[int]) -> torch.Tensor:
    """The whole of prompt and answer in one plain pass, in double precision from the logits on."""
    ids = torch.cat([inputs["input_ids"], torch.tensor([answer])], dim=1)
    kinds = torch.cat([inputs["mm_token_type_ids"], torch.zeros(1, len(answer), dtype=torch.int)], dim=1)
    longer = inputs | {"input_ids": ids, "mm_token_type_ids": kinds, "attention_mask": torch.ones_like(ids)}
    return engine.target.model(**longer).logits[0].double()


def said(logits: torch.Tensor, k: int, written: tuple[int, int, bool]) -> Said:
    probabilities = logits.softmax(-1)
    top = probabilities.topk(k)
    entropy = -sum(p * math.log(p) for p in probabilities.tolist() if p > 0)
    return Said(top.indices.tolist(), top.values.tolist(), entropy / math.log(len(probabilities)), written)


class Memories:
    """The latest record after one, two and three tokens, or a blend of them where they persist, but for TR."""

    def __init__(self, orders: int, plus: bool) -> None:
        self.held: dict[int, dict[tuple[int, ...], tuple[Said | None, Said]]] = {
            order: {} for order in range(1, orders + 1)
        }
        self.plus = plus
        self.blending = () if orders == 1 else (1, 2, 3) if plus else (1,)

    def new_request(self) -> None:
        """The longer keys live for one request."""
        for order in self.held:
            if order > 1 and not self.plus:
                self.held[order] = {}

    def write(self, tokens: list[int], record: Said) -> None:
        """Of what one step writes under a key, the last record alone counts; RECAP+: see there for order 3."""
        for order, memory in self.held.items():
            if self.plus and order == 3 and not record.written[2]:
                continue
            before, last = memory.get(key(tokens, order), (None, None))
            if last and last.written[:2] != record.written[:2]:
                before = last
            memory[key(tokens, order)] = (
                before,
                blended(before, record) if order in self.blending and before else record,
            )

    def read(self, prompt: list[int], placeholder: int, request: int) -> None:
        """RECAP+ takes each next word of the prompt for a prediction, under long keys."""
        for order in (2, 3) if self.plus else ():
            found = {
                key(prompt[: at + 1], order): Said([word], [1.0], 0.0, (request, -1, True))
                for at, word in enumerate(prompt[1:])
                if placeholder not in (prompt[at], word)
            }
            for name, word in found.items():
                _, last = self.held[order].get(name, (None, None))
                self.held[order][name] = (blended(last, word) if last else word,) * 2

    def recall(self, tokens: list[int]) -> list[Said | None]:
        return [self.held.get(order, {}).get(key(tokens, order), (None, None))[1] for order in (1, 2, 3)]


def blended(before: Said, after: Said) -> Said:
    """The weighted mean of the chances, the best of them alone, as probabilities that have these chances.

    Of two that are sure of the same, the later.
    """
    if before.tokens[0] == after.tokens[0] and before.probabilities[0] >= SURE and after.probabilities[0] >= SURE:
        return after
    union = dict.fromkeys(before.tokens + after.tokens)
    mean = sorted((LATER * after.chance(token) + (1 - LATER) * before.chance(token), token) for token in union)
    kept = sorted(mean[-max(len(before.tokens), len(after.tokens)) :], key=lambda pair: -pair[0])
    raised = [chance ** (1 / TEMPER) for chance, _ in kept]
    mass = LATER * sum(after.probabilities) + (1 - LATER) * sum(before.probabilities)
    probabilities = [mass * value / sum(raised) for value in raised]
    return Said(
        [token for _, token in kept], probabilities, LATER * after.entropy + (1 - LATER) * before.entropy, after.written
    )


def key(tokens: list[int], order: int) -> tuple[int, ...]:
    """The last tokens; before the beginning stands -1."""
    return tuple(([-1, -1] + tokens)[-order:])


def weights(recalled: list[Said | None], orders: int) -> list[float]:
    """RECAP: length times the best probability times (1 - entropy), over their sum; Token Recycling has but one."""
    if orders == 1:
        return [1.0, 0.0, 0.0]
    raw = [LENGTH[i] * r.probabilities[0] * (1 - r.entropy) if r else 0.0 for i, r in enumerate(recalled)]
    return [weight / sum(raw) for weight in raw]


def path_to(step, row: int) -> list[int]:
    """The tokens of the tree on the way from the root to a row."""
    tokens: list[int] = []
    while row:
        tokens.insert(0, step.tokens[row - 1])
        row = step.parents[row - 1] + 1
    return tokens


def same(lane, index: int | None, expected: Said | None) -> bool:
    """Is the lane's record `index` what the second implementation recalled?"""
    if index is None or expected is None:
        return index is None and expected is None
    records = lane.records
    return (
        records.tokens[index] == expected.tokens
        and records.written[index] == expected.written
        and records.probabilities[index] == pytest.approx(expected.probabilities, rel=1e-3, abs=1e-6)
        and records.entropy[index] == pytest.approx(expected.entropy, abs=1e-4)
    )


@pytest.mark.parametrize(("name", "orders"), [("tr", 1), ("recap", 3), ("recap+", 3)])
def test_sources_weights_and_shares_are_those_of_a_second_implementation(runs, name, orders):
    memories, checked, recalled_of = Memories(orders, name == "recap+"), 0, set()
    for request, run in enumerate(runs[name], start=1):
        memories.new_request()
        memories.read(run.prompt, run.placeholder, request)
        text = [position for position, token in enumerate(run.prompt) if token != run.placeholder]
        for position in text[-MOST_SEEDS:]:
            memories.write(run.prompt[: position + 1], said(run.logits[position], TOP_K[name], (request, -1, True)))
        answer = [run.lane.first_token]
        for number, step in enumerate(run.lane.steps):
            before = run.prompt + answer
            for node, token in enumerate(step.tokens):
                row = step.parents[node] + 1
                recalled = memories.recall(before + path_to(step, row))
                assert all(map(same, [run.lane] * 3, step.recalled[row], recalled))
                expected = weights(recalled, orders)
                assert step.weights[row] == pytest.approx(expected, abs=1e-4)
                shares = [w * (r.chance(token) if r else 0.0) for w, r in zip(expected, recalled)]
                assert step.shares[node] == pytest.approx(shares, abs=1e-4)
                assert step.fused[node] == pytest.approx(sum(shares), abs=1e-4)
                assert shares[step.orders[node] - 1] == pytest.approx(max(shares), abs=1e-4)
                assert step.agree[node] == sum(r is not None and token in r.tokens for r in recalled)
                recalled_of |= {r.written[0] for r in recalled if r}
                checked += 1
            rows = {-1, *step.accepted}
            rejected = [node for node in range(len(step.tokens)) if node not in rows]
            for node in (*rejected, -1, *step.accepted):  # accepted positions are written last
                index, records = step.rows[node + 1], run.lane.records
                record = Said(
                    records.tokens[index],
                    records.probabilities[index],
                    records.entropy[index],
                    (request, number, node in rows),
                )
                assert same(run.lane, index, record)
                memories.write(before + path_to(step, node + 1), record)
            answer += step.emitted
    assert checked >= 200
    assert recalled_of == {1, 2}


@pytest.mark.parametrize("name", ["tr", "recap", "recap+"])
def test_what_the_target_said_at_accepted_rows_is_what_the_stock_model_says(runs, name):
    for run in runs[name]:
        position = len(run.prompt)  # of the root: the answer's first token
        for number, step in enumerate(run.lane.steps):
            for node in (-1, *step.accepted):
                expected = said(run.logits[position], TOP_K[name], (run.lane.request, number, True))
                assert same(run.lane, step.rows[node + 1], expected)
                position += 1
            position -= step.bonus is None  # the answer ended inside the path: its last token is no root
