"""Every family through its own processor: whatever is asked, every lane gives the ids of `generate`, in float32.

`PYTHONPATH=. python tests/test_families.py` prints the table of families and cases that stands in the README.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_models import generated
from tiny_processors import PROCESSORS, save_tiny

from recap_engine.engine import ALL_LANES, Engine
from recap_engine.errors import RecapError
from recap_engine.images import MOST_PICTURES
from recap_engine.settings import Settings
from recap_engine.trace import LaneTrace

TOKENS = 12
SETTINGS = Settings(max_new_tokens=TOKENS, budget=16)
WHOLE = Image.effect_mandelbrot((400, 300), (-2, -1.5, 1, 1.5), 50).convert("RGB")
SMALL, TALL = WHOLE.resize((40, 28)), WHOLE.crop((100, 0, 130, 90))
TURNS = [("What is it?", "A circle."), ("Which colour?", "Red, and blue.")]
CASES: dict[str, tuple[list[Image.Image], list[tuple[str, str]]]] = {
    "no picture": ([], []),
    "second turn": ([], TURNS[:1]),
    "one picture": ([SMALL], []),
    "two pictures": ([SMALL, TALL], []),
    "third turn with a picture": ([SMALL], TURNS),
    "1 × 1": ([WHOLE.resize((1, 1))], []),
    "1 × 3000": ([WHOLE.resize((1, 3000))], []),
    "4000 × 3000": ([WHOLE.resize((4000, 3000), Image.Resampling.NEAREST)], []),
}
TEXT = [kind for kind in PROCESSORS if kind in ("llama", "mistral", "qwen2", "qwen3", "gpt_neox")]
STATIC = ["llava", "gemma3"]
PAIRS = [(kind, case) for kind in PROCESSORS for case in CASES if kind not in TEXT or not CASES[case][0]]


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory) -> Callable[[str], Engine]:
    """Each family is written to a folder and loaded from it once; its memories stay hot from case to case."""
    engines: dict[str, Engine] = {}

    def get(kind: str) -> Engine:
        if kind not in engines:
            engines[kind] = Engine.load(save_tiny(kind, tmp_path_factory.mktemp(kind)), device="cpu", dtype="float32")
        return engines[kind]

    return get


def identical(engine: Engine, case: str) -> bool:
    """Whether all lanes give the ids of `generate`."""
    pictures, history = CASES[case]
    request = engine.prepare("How many circles?", pictures, history)
    expected = generated(engine, request, TOKENS)
    return all(engine.answer(request, lane, SETTINGS).tokens == expected for lane in ALL_LANES)


@pytest.mark.parametrize(("kind", "case"), PAIRS)
def test_every_lane_gives_the_ids_of_generate(engine_of, kind, case):
    assert identical(engine_of(kind), case)


def first_drafted(trace: LaneTrace) -> int | None:
    """The first token of an answer that was drafted and accepted, and had not come before."""
    seen = {trace.first_token}
    for step in trace.steps:
        for token in step.emitted[: None if step.bonus is None else -1]:
            if token not in seen:
                return token
        seen.update(step.emitted)
    return None


@pytest.mark.parametrize("kind", PROCESSORS)
def test_an_end_of_sequence_inside_a_path_ends_the_answer_there(engine_of, kind):
    """A token that was drafted when the question was asked before is made the end of sequence."""
    engine = engine_of(kind)
    generation, settings = engine.target.model.generation_config, Settings(max_new_tokens=24, budget=16)
    given, inside = generation.eos_token_id, 0
    try:
        for question in ("Say it again.", "What is it?", "Which colour?", "How many circles?"):
            request = engine.prepare(question, [] if kind in TEXT else SMALL)
            generation.eos_token_id = None
            before = [engine.answer(request, "recap", settings) for _ in range(2)][-1]
            if (end := first_drafted(before)) is None:
                continue
            generation.eos_token_id = end
            expected = generated(engine, request, 24)
            for lane in ALL_LANES:
                trace = engine.answer(request, lane, settings)
                assert trace.tokens == expected
                assert trace.stopped == "eos"
                inside += lane == "recap" and trace.steps[-1].bonus is None
    finally:
        generation.eos_token_id = given
    assert inside, "it stood inside an accepted path"


@pytest.mark.parametrize("kind", [kind for kind in PROCESSORS if kind not in TEXT])
def test_pictures_stand_where_they_belong(engine_of, kind):
    """As many as there are, in the first turn, each with its own number of placeholders."""
    engine = engine_of(kind)
    token = engine.target.family.image_token(engine.target.model.config)
    counts = [
        (engine.prepare("What?", pictures, TURNS).inputs["input_ids"] == token).sum().item()
        for pictures in ([], [SMALL], [TALL], [SMALL, TALL])
    ]
    assert counts[0] == 0
    assert counts[3] == counts[1] + counts[2] > counts[1] > 0
    ids = engine.prepare("What?", [SMALL, TALL], TURNS).inputs["input_ids"][0]
    before = engine.tokenizer.decode(ids[: (ids == token).nonzero().max() + 1])
    assert not any(text in before for turn in TURNS for text in turn)


@pytest.mark.parametrize("kind", [kind for kind in PROCESSORS if kind not in TEXT])
def test_a_pictures_size_and_shape_decide_its_tokens_unless_the_family_has_one_size_for_all(engine_of, kind):
    """Dynamic and static resolution; either way every lane gives the ids of `generate`, see above."""
    engine = engine_of(kind)
    pictures = (WHOLE.resize((12, 12)), WHOLE, TALL)
    counts = {engine.prepare("What?", picture).prompt_tokens for picture in pictures}
    assert (len(counts) == 1) == (kind in STATIC)


@pytest.mark.parametrize("kind", [kind for kind in PROCESSORS if kind not in TEXT])
def test_an_answer_read_behind_its_prompt_says_the_same_tokens(engine_of, kind):
    """What image sensitivity rests on; and a blank picture makes the same prompt."""
    engine = engine_of(kind)
    request = engine.prepare("What is it?", [SMALL, TALL])
    tokens = engine.answer(request, "ar", SETTINGS).tokens
    with torch.inference_mode():
        states = engine.target.read_answer(request.inputs, tokens)
        assert engine.target.logits(states).argmax(-1).tolist() == tokens
    measured = engine.sensitivity(request, tokens)
    assert len(measured.kl) == len(measured.changed) == len(tokens)
    assert max(measured.kl) > 0


def test_a_request_says_what_it_changed_of_its_pictures(engine_of):
    request = engine_of("llava").prepare("What?", [SMALL, CASES["4000 × 3000"][0][0], WHOLE.resize((1, 90))])
    ((given, shown),) = request.reduced
    assert given == (4000, 3000)
    assert shown == request.pictures[1].size
    assert request.image_size == SMALL.size
    assert request.pictures[2].size == (5, 90)


def test_a_question_has_only_so_many_pictures(engine_of):
    with pytest.raises(RecapError, match="these are 9"):
        engine_of("llava").prepare("What?", [SMALL] * (MOST_PICTURES + 1))


@pytest.mark.parametrize("kind", [kind for kind in PROCESSORS if kind not in TEXT])
def test_half_precision_takes_pictures_too(engine_of, kind, tmp_path):
    engine = Engine.load(save_tiny(kind, tmp_path), device="cpu", dtype="bfloat16")
    request = engine.prepare("What?", SMALL)
    assert all(engine.answer(request, lane, Settings(max_new_tokens=3)).tokens for lane in ALL_LANES)


def test_the_readmes_table_has_every_family_and_case():
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    head, _, *rows = readme[readme.index("| family |") :].split("\n\n")[0].splitlines()
    assert head == "| family | " + " | ".join(CASES) + " |"
    assert [row.split(" | ")[0] for row in rows] == [f"| {kind}" for kind in PROCESSORS]
    for kind, row in zip(PROCESSORS, rows, strict=True):
        assert row.count("identical") == sum((kind, case) in PAIRS for case in CASES)


def table() -> str:
    """Families in rows, cases in columns, for the README."""
    lines = ["| family | " + " | ".join(CASES) + " |", "| --- |" + " --- |" * len(CASES)]
    for kind in PROCESSORS:
        engine = Engine.load(save_tiny(kind, Path(tempfile.mkdtemp())), device="cpu", dtype="float32")
        same = [identical(engine, case) if (kind, case) in PAIRS else None for case in CASES]
        cells = ["–" if one is None else "identical" if one else "DIFFERENT" for one in same]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
