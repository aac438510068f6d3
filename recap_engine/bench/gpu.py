"""What a GPU makes of it, in under eight minutes: `python -m recap_engine.bench.gpu` prints tables, without a download.

1. Are the answers those of `generate` on this device, in float32 and in bfloat16? Two tiny random models and the
   embedded one.
2. What does a step over n nodes cost a model of the shape of Qwen2.5-VL-7B or LLaVA-1.6-7B, eager and as a CUDA graph?
   Their weights are random, made on the device: what a pass costs does not depend on what they say.
3. How fast are the lanes with the embedded model?
4. Which share of a step is spent outside the target's pass?

`--tiny` does the same on a CPU with tiny shapes, to see that it works.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from transformers import (
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from recap_engine.bench.costs import outside
from recap_engine.bench.lanes import LANES, Plan
from recap_engine.bench.ratios import rows
from recap_engine.bench.report import Table, aligned, overview
from recap_engine.bench.results import Setting
from recap_engine.bench.runner import Runner
from recap_engine.bench.session import Session
from recap_engine.bench.suites import drawn
from recap_engine.engine import ALL_LANES, Engine
from recap_engine.errors import RecapError, first_line
from recap_engine.models.families import family_of
from recap_engine.models.loading import make_greedy
from recap_engine.request import Request
from recap_engine.scenes import FAMILIES
from recap_engine.settings import Settings
from recap_engine.stepcost import comb
from recap_engine.target import Reads, Target
from recap_engine.tree import CandidateTree

LIMIT_S = 8 * 60  # no part begins later than three quarters of it
SPECIAL = 4  # ids from the end of the vocabulary: picture, its start and end, video


class Shape(NamedTuple):
    """Sizes of a language model and of its vision tower."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vision: dict[str, Any]


class Scale(NamedTuple):
    """How much is measured."""

    shapes: Mapping[str, tuple[Callable[[Shape], PreTrainedModel], Shape]]
    nodes: Sequence[int]
    context: int  # committed tokens before a timed pass
    repeats: int
    suites: Sequence[str]
    tokens: int


# ---- models ----


def qwen(shape: Shape) -> PreTrainedModel:
    """A random Qwen2.5-VL of that shape."""
    half = shape.width // shape.heads // 2
    text = _text(shape) | {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8],
        }
    }
    image, start, end, video = range(shape.vocabulary - SPECIAL, shape.vocabulary)
    vision = {"out_hidden_size": shape.width, **shape.vision}
    ids: dict[str, Any] = {
        "image_token_id": image,
        "vision_start_token_id": start,
        "vision_end_token_id": end,
        "video_token_id": video,
    }
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids))


def llava(shape: Shape) -> PreTrainedModel:
    """A random LLaVA-NeXT of that shape."""
    text = _text(shape) | {"model_type": "llama"}
    vision = {"model_type": "clip_vision_model", **shape.vision}
    image = shape.vocabulary - SPECIAL
    return LlavaNextForConditionalGeneration(
        LlavaNextConfig(text_config=text, vision_config=vision, image_token_index=image)
    )


def _text(shape: Shape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


QWEN_VISION = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
CLIP_VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
CLIP_VISION |= {"image_size": 336, "patch_size": 14}
SMALL_QWEN = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4}
SMALL_CLIP = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL_CLIP |= {"image_size": 16, "patch_size": 8}
SMALL = (96, 64, 96, 2, 4, 2)
TINY = {"tiny Qwen2.5-VL": (qwen, Shape(*SMALL, SMALL_QWEN)), "tiny LLaVA-NeXT": (llava, Shape(*SMALL, SMALL_CLIP))}
LARGE = {
    "Qwen2.5-VL-7B's shape": (qwen, Shape(152064, 3584, 18944, 28, 28, 4, QWEN_VISION)),
    "LLaVA-1.6-7B's shape": (llava, Shape(32064, 4096, 11008, 32, 32, 32, CLIP_VISION)),
}
WHOLE = Scale(LARGE, (0, 1, 2, 4, 8, 16, 32, 64, 96, 128), 1024, 15, FAMILIES, 200)
TRIAL = Scale(TINY, (0, 1, 4), 16, 2, FAMILIES[:1], 12)


def random_engine(
    name: str, build: Callable[[Shape], PreTrainedModel], shape: Shape, device: str, dtype: str
) -> Engine:
    """An engine around a random model that is made where it will run, in the precision it will have."""
    usual = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            model = build(shape)
    finally:
        torch.set_default_dtype(usual)
    make_greedy(model)
    return Engine(Target(model, family_of(model.config)), model_name=name)


def random_request(engine: Engine, words: int, seed: int = 0) -> Request:
    """A prompt of random words, said twice, so that there is something to recall."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, engine.target.vocabulary - SPECIAL, (1, words), generator=generator)
    return Request({"input_ids": ids.repeat(1, 2)}, question=f"random prompt {seed}")


# ---- the parts: each yields rows for its table, as they are measured ----


def correctness(scale: Scale, device: str) -> Iterator[list[str]]:
    yield ["model", "precision", *ALL_LANES]
    settings = Settings(max_new_tokens=scale.tokens, budget=16, record=False)
    for dtype in ("float32", "bfloat16"):
        for name, (build, shape) in TINY.items():
            engine = random_engine(name, build, shape, device, dtype)
            yield [name, dtype, *compared(engine, [random_request(engine, 12, seed) for seed in (0, 1, 2)], settings)]
        engine = Engine.load(None, device, dtype)
        yield [engine.model_name, dtype, *compared(engine, asked(engine, scale), settings)]


def compared(engine: Engine, requests: Sequence[Request], settings: Settings) -> Iterator[str]:
    """Per lane, how many answers are those of generate, and the largest margin where one is not."""
    reference = LANES["generate"].build(Plan(engine, settings))
    expected = []
    for request in requests:
        request.prefill = engine.target.prefill(request.inputs)
        expected.append(reference.run(request, []).tokens)
    runner = Runner(engine, {})
    for lane in ALL_LANES:
        margins = []
        for request, tokens in zip(requests, expected, strict=True):
            _, margin = runner.difference(request, tokens, engine.answer(request, lane, settings).tokens)
            margins += [] if margin is None else [margin]
        told = f"{len(requests) - len(margins)} of {len(requests)}"
        yield told + (f", margin {max(margins):.1e}" if margins else "")


def step_cost(scale: Scale, device: str) -> Iterator[list[str]]:
    yield ["model", "mode", *(f"{nodes} nodes" for nodes in scale.nodes), "outside the pass"]
    dtype = "bfloat16" if device != "cpu" else "float32"
    for name, (build, shape) in scale.shapes.items():
        engine = random_engine(name, build, shape, device, dtype)
        settings = Settings(max_new_tokens=min(64, scale.tokens), budget=min(32, scale.nodes[-1]), floor=0.0)
        request = random_request(engine, scale.context // 2)
        share = outside(engine, [request, request], "recap", settings)["value"]
        yield [name, "eager", *times(engine.target, scale, eager_s), f"{share:.1f} % at {settings.budget} nodes"]
        if device != "cpu":
            yield [name, "CUDA graph", *times(engine.target, scale, graph_s), ""]
            del engine, request
            torch.cuda.empty_cache()


def times(target: Target, scale: Scale, seconds: Callable[..., list[float]]) -> list[str]:
    """Milliseconds of a pass by its nodes; a dash and the reason where it can't be run so."""
    cells = []
    for nodes in scale.nodes:
        try:
            cells.append(f"{1e3 * median(seconds(target, comb(nodes), scale)):.2f} ms")
        except (RuntimeError, RecapError) as error:
            cells.append(f"– ({first_line(error):.60})")
    return cells


def eager_s(target: Target, tree: CandidateTree, scale: Scale) -> list[float]:
    """Seconds of `verify` as the engine calls it, its reading included."""
    buffer = target.open(_prompt(target, scale), 1, max(1, len(tree)))
    reads = Reads(top_k=8, probabilities=True, entropy=True)
    return _timed(lambda: target.verify(buffer, tree, reads), target, scale.repeats)


@torch.inference_mode()
def graph_s(target: Target, tree: CandidateTree, scale: Scale) -> list[float]:
    """Seconds of the same pass, without the reading, recorded once and replayed."""
    buffer = target.open(_prompt(target, scale), 1, max(1, len(tree)))
    ids = torch.tensor([[0, *tree.tokens]], device=target.device)
    base = buffer.length + buffer.position_offset
    positions = base + torch.tensor([[0, *tree.depths]], device=target.device)
    positions = positions.expand(3, 1, -1) if target.family.mrope else positions
    mask = buffer.mask_for(tree)

    def run() -> torch.Tensor:
        return target.model(input_ids=ids, position_ids=positions, attention_mask=mask, cache=buffer).logits

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return _timed(graph.replay, target, scale.repeats)


def _prompt(target: Target, scale: Scale) -> Any:
    return target.prefill({"input_ids": torch.zeros(1, scale.context, dtype=torch.long)})


def _timed(run: Callable[[], object], target: Target, repeats: int) -> list[float]:
    run(), run()
    found = []
    for _ in range(repeats):
        target.synchronize()
        start = perf_counter()
        run()
        target.synchronize()
        found.append(perf_counter() - start)
    return found


def lanes(scale: Scale, device: str) -> Table:
    engine = Engine.load(None, device, "float32")
    suites = [drawn(name, 1, 1000) for name in scale.suites]
    settings = Settings(max_new_tokens=scale.tokens, record=False)
    session = Session(engine, suites, list(LANES), settings, Setting({}, engine.machine))
    for _ in session.run():
        pass
    return overview(rows(session.measurements))


def beside(scale: Scale, device: str) -> Iterator[list[str]]:
    engine = Engine.load(None, device, "float32")
    yield ["lane", "outside the target's pass", "from", "to"]
    for lane in ALL_LANES:
        share = outside(engine, asked(engine, scale), lane, Settings(max_new_tokens=scale.tokens))
        yield [lane, *(f"{share[part]:.1f} %" for part in ("value", "low", "high"))]


def asked(engine: Engine, scale: Scale) -> list[Request]:
    """A drawn picture of every suite."""
    cases = [case for name in scale.suites for case in drawn(name, 1, 1000).cases]
    return [engine.prepare(case.questions[0], case.picture()) for case in cases]


PARTS: dict[str, Callable[[Scale, str], Any]] = {
    "Answers that are those of generate": correctness,
    "Time of a step over n nodes": step_cost,
    "Lanes, embedded model, float32": lanes,
    "Share of a step, embedded model, float32": beside,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, and write them to `--out`; a part that fails or comes too late is told in a sentence."""
    parser = argparse.ArgumentParser("python -m recap_engine.bench.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, on the CPU")
    parser.add_argument("--out", type=Path, help="a file for the tables, in Markdown")
    options = parser.parse_args(arguments)
    if not options.tiny and not torch.cuda.is_available():
        print("recap_engine.bench.gpu: PyTorch sees no CUDA device here; --tiny tries the script out.", file=sys.stderr)
        return 1
    scale, device = (TRIAL, "cpu") if options.tiny else (WHOLE, "cuda")
    name = device if options.tiny else torch.cuda.get_device_name()
    told, failed = [f"{name}, torch {torch.__version__}", ""], 0
    start = perf_counter()
    for title, part in PARTS.items():
        begun = perf_counter()
        if begun - start > 0.75 * LIMIT_S:
            body = f"Left out: {begun - start:.0f} s were over."
        else:
            try:
                body = aligned(list(part(scale, device)))
            except (RuntimeError, RecapError) as error:
                body, failed = f"This part failed: {first_line(error)}", failed + 1
        told += [f"## {title} ({perf_counter() - begun:.0f} s)", "", body, ""]
        print("\n".join(told[-4:]), flush=True)
    if options.out:
        options.out.write_text("\n".join(told))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
