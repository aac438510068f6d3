"""The lanes of a comparison, by name. Adding one takes a file like this and `--adapter FILE`:

    from recap_engine.bench.lanes import LANES, Kind, callable_lane, decoder_lane

    def lookahead(model, inputs, max_new_tokens):
        # a public peer: takes a transformers model and its inputs, returns the new ids
        return lookahead_decoding.generate(model, **inputs, max_new_tokens=max_new_tokens)

    LANES["lookahead"] = Kind("lookahead decoding, by its authors", lambda plan: callable_lane(plan, lookahead))

    def mine(plan):
        # a method in the loop that AR, TR and RECAP share: a subclass of `recap_engine.decoders.Decoder`
        memory = MyMemory()
        return decoder_lane(plan, lambda request, answer: MyDecoder(memory, plan.settings), forget=memory.clear)

    LANES["mine"] = Kind("my own memory", mine)

Speedups, intervals, the check of the output and the report come with it.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from recap_engine.bench.oracle import Oracle
from recap_engine.decode import decode
from recap_engine.decoders import Decoder
from recap_engine.engine import Engine
from recap_engine.errors import RecapError, first_line
from recap_engine.request import Request
from recap_engine.settings import Settings
from recap_engine.trace import LaneTrace

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Run:
    """One lane's run of one request. Times in seconds; `decode_s` includes seeding memories from the prompt."""

    tokens: list[int]  # the new ids
    steps: int  # passes after the prefill
    prefill_s: float
    decode_s: float
    details: dict[str, Any] = field(default_factory=dict)  # what else there is to keep of it, as JSON


@dataclass(frozen=True)
class Lane:
    """One way to answer requests, one at a time, with whatever it remembers between them."""

    run: Callable[[Request, list[int]], Run]  # a prefilled request, and the answer if `needs_answer`
    forget: Callable[[], object] | None = None  # drops what earlier requests left; None: it remembers nothing
    needs_answer: bool = False  # then it runs last, and gets the first lane's ids


@dataclass(frozen=True)
class Plan:
    """What a lane is built from."""

    engine: Engine
    settings: Settings
    budgets: dict[str, int] = field(default_factory=dict)  # nodes, by lane, where calibration found them


class Kind(NamedTuple):
    """An entry of LANES."""

    about: str  # one line for the report
    build: Callable[[Plan], Lane]


def load_adapter(path: Path) -> None:
    """Run a Python file that registers lanes. Raises RecapError if there is no such file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RecapError(f"{path} is not a Python file.")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def engine_lane(plan: Plan, name: str, budget: int | None = None) -> Lane:
    """A lane of the engine with memories of its own, and a budget of its own if one is given."""
    engine = plan.engine.apart()
    settings = plan.settings if budget is None else replace(plan.settings, budget=budget)
    forget = engine.clear_memories if name in engine.memories else None
    return Lane(lambda request, _: _run_of(engine.answer(request, name, settings)), forget)


def decoder_lane(plan: Plan, make: Callable[[Request, list[int]], Decoder], **more: Any) -> Lane:
    """A `Decoder` of one's own in the shared loop, made anew for each request. `more`: see `Lane`."""

    def run(request: Request, answer: list[int]) -> Run:
        assert request.prefill is not None
        target, decoder = plan.engine.target, make(request, answer)
        *_, last = decode(target, decoder, request.prefill, plan.settings, lambda tokens: "")
        return _run_of(last.trace)

    return Lane(run, **more)


def callable_lane(plan: Plan, function: Callable[[PreTrainedModel, Inputs, int], list[int]]) -> Lane:
    """A function from (model, inputs, max_new_tokens) to the new ids, which runs the prompt itself.

    All until the model's first pass is over counts as prefill, and every later pass as a step. If it never calls the
    model as a module, all is decoding, and every token a step. What it raises becomes a RecapError.
    """
    target = plan.engine.target

    @torch.inference_mode()
    def run(request: Request, _: list[int]) -> Run:
        given = {"attention_mask": torch.ones_like(request.inputs["input_ids"]), **request.inputs}
        inputs = {name: value.to(target.device) for name, value in given.items()}
        passes: list[float] = []

        def passed(*_: object) -> None:
            if not passes:
                target.synchronize()
            passes.append(perf_counter())

        hook = target.model.register_forward_hook(passed)
        target.synchronize()
        start = perf_counter()
        try:
            tokens = function(target.model, inputs, plan.settings.max_new_tokens)
        except Exception as error:  # whatever a peer's code raises, the other lanes go on
            raise RecapError(f"{type(error).__name__}: {first_line(error)}") from error
        finally:
            hook.remove()
        target.synchronize()
        first, steps = (passes[0], len(passes) - 1) if passes else (start, len(tokens) - 1)
        return Run(tokens, steps, first - start, perf_counter() - first)

    return Lane(run)


def _run_of(trace: LaneTrace) -> Run:
    return Run(trace.tokens, trace.n_steps, trace.prefill_s, trace.seed_s + trace.decode_s)


def _generate(model: Any, inputs: Inputs, most: int, **options: Any) -> list[int]:
    ids = model.generate(**inputs, do_sample=False, max_new_tokens=most, **options)
    return ids[0, inputs["input_ids"].shape[1] :].tolist()


def _prompt_lookup(plan: Plan) -> Lane:
    """Placeholders of the picture are forbidden: it would draft them from the prompt, and the model refuses that."""
    target = plan.engine.target
    image = target.family.image_token(target.model.config)
    options = {"prompt_lookup_num_tokens": 10, "suppress_tokens": None if image is None else [image]}
    return callable_lane(plan, lambda model, inputs, most: _generate(model, inputs, most, **options))


def _oracle(plan: Plan) -> Lane:
    def make(request: Request, answer: list[int]) -> Oracle:
        return Oracle(answer, plan.engine.cost_for(request, plan.settings), plan.settings.max_depth)

    return decoder_lane(plan, make, needs_answer=True)


LANES = {
    "generate": Kind("transformers' generate, greedy", lambda plan: callable_lane(plan, _generate)),
    "prompt-lookup": Kind(
        "transformers' generate with prompt_lookup_num_tokens=10: drafts what followed the same words before",
        _prompt_lookup,
    ),
    "ar": Kind("one token a step: the baseline of every speedup", lambda plan: engine_lane(plan, "ar")),
    "tr": Kind("Token Recycling with the 80 nodes of its paper", lambda plan: engine_lane(plan, "tr", 80)),
    "tr-best": Kind(
        "Token Recycling with the budget that was fastest on the calibration questions",
        lambda plan: engine_lane(plan, "tr", plan.budgets["tr-best"]),
    ),
    "tr-same": Kind(
        "Token Recycling with as many nodes as RECAP's mean tree on the calibration questions",
        lambda plan: engine_lane(plan, "tr", plan.budgets["tr-same"]),
    ),
    "recap": Kind("one-, two- and three-token memories", lambda plan: engine_lane(plan, "recap")),
    "recap+": Kind(
        "the same, long keys kept across requests, the prompt's own words too", lambda plan: engine_lane(plan, "recap+")
    ),
    "oracle": Kind("the bound: knows the answer; RECAP's depth limit and step cost", _oracle),
}
