"""The loop all decoders share: draft -> verify -> accept -> update, until the answer ends.

Greedy and lossless: a step only ever adds tokens that are the target's own argmax, so every decoder gives the answer of
`model.generate(do_sample=False)`; a good draft makes it arrive in fewer passes.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from time import perf_counter

from recap_engine.decoders.base import Decoder
from recap_engine.kvcache import KVBuffer
from recap_engine.memory import NO_TOKEN
from recap_engine.recorder import Recorder
from recap_engine.settings import Settings
from recap_engine.target import Prefill, Target
from recap_engine.trace import LaneTrace, StepTrace
from recap_engine.tree import Context


@dataclass
class Progress:
    """What a lane has reached: once after the prefill, then after every step."""

    lane: str
    new_tokens: list[int]
    text: str  # the whole answer so far
    n_tokens: int
    n_steps: int
    elapsed_s: float  # of decoding, without the prefill and without the time the reader of the stream takes
    prefill_s: float
    done: bool
    step: StepTrace | None
    trace: LaneTrace  # the lane so far: it grows with the next step, and is "cancelled" until it is done


def decode(
    target: Target, decoder: Decoder, prefill: Prefill, settings: Settings, to_text: Callable[[list[int]], str]
) -> Iterator[Progress]:
    """Run one lane. Closing the generator cancels it at the next step; however it ends, local memory is dropped."""
    lane = LaneTrace(
        name=decoder.name,
        tokens=[prefill.first_token],
        text="",
        prefill_s=prefill.seconds,
        decode_s=0.0,
        first_token=prefill.first_token,
        steps=[],
        settings=asdict(settings),
        stopped="cancelled",
        request=decoder.request,
    )
    recorder = Recorder(lane, decoder.token_memory)
    stops = target.stop_tokens
    try:
        lane.seed_s = _seed(target, decoder, prefill, settings)
        buffer = target.open(prefill, settings.max_new_tokens, decoder.most_nodes)
        step = None
        while True:
            ended = lane.tokens[-1] in stops
            done = ended or len(lane.tokens) >= settings.max_new_tokens
            lane.text = to_text(lane.tokens)
            if done:
                lane.stopped = "eos" if ended else "length"
            yield Progress(
                lane=lane.name,
                new_tokens=step.emitted if step else lane.tokens[:],
                text=lane.text,
                n_tokens=lane.n_tokens,
                n_steps=lane.n_steps,
                elapsed_s=lane.decode_s,
                prefill_s=lane.prefill_s,
                done=done,
                step=step,
                trace=lane,
            )
            if done:
                return
            step = _step(target, decoder, buffer, prefill, lane, settings, recorder)
    finally:
        decoder.end()


def _seed(target: Target, decoder: Decoder, prefill: Prefill, settings: Settings) -> float:
    """Let the decoder remember the prompt's own predictions, if it remembers at all. Returns the seconds it took."""
    if not decoder.reads.top_k:
        return 0.0
    start = perf_counter()
    reading = target.read_prompt(prefill, decoder.reads)
    decoder.seed(prefill, reading)
    seconds = perf_counter() - start
    if settings.record:
        target.complete_prompt(prefill, reading)
    return seconds


def _step(
    target: Target,
    decoder: Decoder,
    buffer: KVBuffer,
    prefill: Prefill,
    lane: LaneTrace,
    settings: Settings,
    recorder: Recorder,
) -> StepTrace:
    """One draft -> verify -> accept -> update; adds what it emits to the lane."""
    context = _context(prefill.tokens, lane.tokens)
    room = settings.max_new_tokens - lane.n_tokens  # an accepted path of room - 1 and its bonus token just fit
    start = perf_counter()
    tree = decoder.draft(context, room - 1)
    drafted = perf_counter()
    reading = target.verify(buffer, tree, decoder.reads)
    verified = perf_counter()
    accepted = tree.accept(reading.argmax)
    target.commit(buffer, accepted)
    if settings.record:
        target.synchronize()
    committed = perf_counter()
    decoder.update(tree, reading, accepted, lane.n_steps)
    updated = perf_counter()

    emitted = [tree.tokens[node] for node in accepted]
    bonus = None
    if not emitted or emitted[-1] not in target.stop_tokens:
        bonus = reading.argmax[accepted[-1] + 1 if accepted else 0]
        emitted.append(bonus)
    lane.decode_s += updated - start
    step = StepTrace(
        root_token=context[-1],
        root_position=lane.n_tokens - 1,
        bonus=bonus,
        emitted=emitted,
        draft_s=drafted - start,
        verify_s=verified - drafted,
        accept_s=committed - verified,
        update_s=updated - committed,
        memory=decoder.sizes(),
        ended_s=lane.decode_s,
    )
    if settings.record and decoder.reads.top_k:
        target.complete(reading, tree)
        recorder.add(step, tree, reading, accepted)
    lane.tokens += emitted
    lane.steps.append(step)
    return step


def _context(prompt: list[int], answer: list[int]) -> Context:
    """The last three tokens of prompt and answer."""
    one, two, three = [NO_TOKEN, NO_TOKEN, *prompt[-2:], *answer[-3:]][-3:]
    return one, two, three
