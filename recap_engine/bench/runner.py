"""Runs every lane on the same requests, one after another, and keeps what each took.

Fair: the lanes of a request share its prefill and run alone on the device; their order rotates from request to request;
one warm-up request is thrown away; memories start empty, or from the same earlier questions, and are never shared
between lanes. Hot memories stay from request to request within a lane, cold ones are emptied before each.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from recap_engine.bench.lanes import Lane, Run
from recap_engine.bench.results import Measurement
from recap_engine.bench.suites import Case
from recap_engine.engine import Engine
from recap_engine.errors import RecapError
from recap_engine.request import Request


class StoppedError(Exception):
    """Someone asked for the run to end."""


@dataclass
class Runner:
    """Runs lanes on cases. The first lane is the reference that the others' answers are compared with."""

    engine: Engine
    lanes: dict[str, Lane]
    cold: bool = False
    stopped: Callable[[], bool] = lambda: False  # looked at before every lane's run, which then raises StoppedError

    def warm_up(self, request: Request) -> list[str]:
        """Run every lane once and forget it. One that cannot run here is left out; returns a sentence for each."""
        request.prefill = self.engine.target.prefill(request.inputs)
        left_out: list[str] = []
        answer: list[int] = []
        for name, lane in list(self.lanes.items()):
            self._check_stopped()
            try:
                answer = lane.run(request, answer).tokens
            except RecapError as error:
                del self.lanes[name]
                left_out.append(f"{name} is left out: {error}")
            if lane.forget:
                lane.forget()
        return left_out

    def remember(self, case: Case) -> None:
        """The case's first question to the lanes that remember, and nothing measured."""
        request = self.engine.prepare(case.questions[0], case.picture())
        request.prefill = self.engine.target.prefill(request.inputs)
        for lane in self.lanes.values():
            if lane.forget and not lane.needs_answer:
                self._check_stopped()
                lane.run(request, [])

    def case(self, case: Case, number: int, most_turns: int | None = None) -> list[Measurement]:
        """All lanes on every turn of the case; `number` rotates their order. Raises RecapError if it can't be asked."""
        history: list[tuple[str, str]] = []
        measured: list[Measurement] = []
        for turn, question in enumerate(case.questions[:most_turns], start=1):
            request = self.engine.prepare(question, case.picture(), history)
            runs = self._run_all(request, number + turn - 1)
            reference = next(iter(runs.values())).tokens
            text = self._text(reference)
            history.append((question, text))
            right = None
            if case.answer and turn == len(case.questions):
                right = case.answer.strip().casefold() in text.casefold()
            for name, run in runs.items():
                counts = len(run.tokens), run.steps, run.prefill_s, run.decode_s
                difference = self.difference(request, reference, run.tokens)
                measured.append(
                    Measurement(case.suite, case.name, turn, name, *counts, *difference, right, run.details)
                )
        return measured

    def _run_all(self, request: Request, number: int) -> dict[str, Run]:
        """Every lane on one request; the results are in the lanes' own order, whatever the order of running."""
        request.prefill = self.engine.target.prefill(request.inputs)
        first, *_ = names = [name for name, lane in self.lanes.items() if not lane.needs_answer]
        shift = number % len(names)
        runs = {name: self._run(name, request, []) for name in [*names[shift:], *names[:shift]]}
        answer = runs[first].tokens
        return {name: runs.get(name) or self._run(name, request, answer) for name in self.lanes}

    def _run(self, name: str, request: Request, answer: list[int]) -> Run:
        self._check_stopped()
        lane = self.lanes[name]
        if self.cold and lane.forget:
            lane.forget()
        return lane.run(request, answer)

    def _check_stopped(self) -> None:
        if self.stopped():
            raise StoppedError

    def _text(self, tokens: list[int]) -> str:
        tokenizer = self.engine.tokenizer
        return str(tokenizer.decode(tokens, skip_special_tokens=True)) if tokenizer else ""

    @torch.inference_mode()
    def difference(self, request: Request, reference: list[int], tokens: list[int]) -> tuple[int | None, float | None]:
        """Where an answer first leaves the reference, and the target's logit gap of its two best tokens there."""
        if tokens == reference:
            return None, None
        shorter = min(len(reference), len(tokens))
        index = next((i for i in range(shorter) if reference[i] != tokens[i]), shorter)
        target = self.engine.target
        hidden = target.read_answer(request.inputs, [*reference[:index], 0])  # 0 stands for the token to be said
        best, second = target.logits(hidden[-1:])[0].topk(2).values.tolist()
        return index, best - second
