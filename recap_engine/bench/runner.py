"""Runs every lane on the same requests, one after another, and keeps what each took.

Fair: lanes of a request share its prefill and run alone on the device; the order rotates from request to request; one
warm-up request is thrown away; persistent memories stay hot within a lane and are never shared between lanes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from recap_engine.engine import Engine
from recap_engine.request import Request
from recap_engine.scenes import Example
from recap_engine.settings import Settings


@dataclass(frozen=True)
class Lane:
    """A decoder under a name of its own: its lane in the engine (None: transformers' `generate`) and its settings."""

    name: str
    decoder: str | None
    settings: Settings


@dataclass(frozen=True)
class Measurement:
    """One lane's run of one request. Times in seconds; decode_s includes seeding memories from the prompt."""

    family: str
    seed: int
    lane: str
    tokens: int
    steps: int
    prefill_s: float
    decode_s: float
    identical: bool  # to the ids of `generate`
    margin: float | None = None  # the target's logit gap at the first difference, if there is one

    @property
    def total_s(self) -> float:
        return self.prefill_s + self.decode_s


def lanes(max_new_tokens: int, budget: int | str, recap_nodes: int) -> list[Lane]:
    """`generate`, AR, TR with its 80 nodes, TR cut to `recap_nodes`, RECAP."""
    settings = Settings(max_new_tokens=max_new_tokens, budget=budget, record=False)
    return [
        Lane("generate", None, settings),
        Lane("ar", "ar", settings),
        Lane("tr, 80 nodes", "tr", replace(settings, budget=80)),
        Lane(f"tr, {recap_nodes} nodes", "tr", replace(settings, budget=recap_nodes)),
        Lane("recap", "recap", settings),
    ]


def mean_nodes(engine: Engine, examples: Iterable[Example], settings: Settings) -> int:
    """Nodes in RECAP's mean tree, rounded: the budget that makes Token Recycling comparable. Warms the model up too."""
    fresh = engine.apart()
    traces = [
        fresh.answer(fresh.prepare(e.turns[0][0], e.picture), "recap", replace(settings, record=True)) for e in examples
    ]
    sizes = [len(step.tokens) for trace in traces for step in trace.steps]
    return max(1, round(sum(sizes) / max(len(sizes), 1)))


class Runner:
    """Runs lanes on examples. Each lane has an engine of its own around one shared target, so memories stay apart."""

    def __init__(self, engine: Engine, lanes: list[Lane]) -> None:
        self.engine, self.lanes = engine, lanes
        self.engines = {lane.name: engine.apart() for lane in lanes}

    def run(self, examples: Iterable[Example], progress: Callable[[str], None] = print) -> Iterator[Measurement]:
        for turn, example in enumerate(examples):
            shift = turn % len(self.lanes)
            order = [*self.lanes[shift:], *self.lanes[:shift]]
            yield from self.compare(example, order)
            progress(f"{example.family} {example.seed}")

    def compare(self, example: Example, order: list[Lane]) -> list[Measurement]:
        """All lanes on one example, in the given order."""
        request = self.engine.prepare(example.turns[0][0], example.picture)
        request.prefill = self.engine.target.prefill(request.inputs)
        runs = {lane.name: self._run(lane, request) for lane in order}
        reference = runs["generate"][0]
        out = []
        for name, (tokens, steps, prefill_s, decode_s) in runs.items():
            same = tokens == reference
            margin = None if same else self._margin(request, reference, tokens)
            out.append(
                Measurement(example.family, example.seed, name, len(tokens), steps, prefill_s, decode_s, same, margin)
            )
        return out

    def _run(self, lane: Lane, request: Request) -> tuple[list[int], int, float, float]:
        if lane.decoder is None:
            return self._generate(request, lane.settings.max_new_tokens)
        trace = self.engines[lane.name].answer(request, lane.decoder, lane.settings)
        return trace.tokens, trace.n_steps, trace.prefill_s, trace.seed_s + trace.decode_s

    @torch.inference_mode()
    def _generate(self, request: Request, max_new_tokens: int) -> tuple[list[int], int, float, float]:
        """transformers' own greedy search; its prefill cannot be told apart, so all its time counts as decoding."""
        start = time.perf_counter()
        ids = self.engine.target.model.generate(**request.inputs, do_sample=False, max_new_tokens=max_new_tokens)
        self.engine.target.synchronize()
        seconds = time.perf_counter() - start
        tokens = ids[0, request.prompt_tokens :].tolist()
        return tokens, len(tokens) - 1, 0.0, seconds

    def _margin(self, request: Request, reference: list[int], tokens: list[int]) -> float:
        """The target's logit gap between its two best tokens where the answers part."""
        same = next((i for i, (a, b) in enumerate(zip(reference, tokens)) if a != b), min(len(reference), len(tokens)))
        ids = torch.tensor([[*request.inputs["input_ids"][0].tolist(), *reference[:same]]])
        inputs = {**request.inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "mm_token_type_ids" in inputs:
            types = inputs["mm_token_type_ids"]
            inputs["mm_token_type_ids"] = torch.cat([types, types.new_zeros(1, ids.shape[1] - types.shape[1])], dim=1)
        with torch.inference_mode():
            best = self.engine.target.model(**inputs).logits[0, -1].topk(2).values
        return float(best[0] - best[1])
