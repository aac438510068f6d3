"""From a folder with a model to answers: loading, prompts, settings, the command line. The model is random."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_models import tiny_engine
from transformers import CLIPConfig, LlamaConfig, LlamaForCausalLM

import recap_engine
from recap_engine.__main__ import main
from recap_engine.engine import LANES, Engine
from recap_engine.errors import RecapError
from recap_engine.models.prompting import ZERO_WIDTH_SPACE, as_plain_text
from recap_engine.scenes.model import build_model, build_processor, build_tokenizer
from recap_engine.settings import Settings
from recap_engine.trace import RequestTrace

PICTURE = Image.effect_mandelbrot((96, 64), (-2, -1.5, 1, 1.5), 50).convert("RGB")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A stock-format folder: config, safetensors weights, tokenizer, processor and chat template."""
    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    tokenizer = build_tokenizer(["What is in the picture?", "A red circle and two blue squares."])
    build_model(tokenizer).save_pretrained(path)
    build_processor(tokenizer).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def engine(folder):
    return Engine.load(folder, device="cpu")


def test_all_lanes_answer_alike_from_a_picture_and_a_question(engine):
    request = engine.prepare("What is in the picture?", PICTURE)
    assert request.image_size == (96, 64)
    assert (request.inputs["input_ids"] == engine.target.model.config.image_token_id).sum() > 0
    with torch.no_grad():
        ids = engine.target.model.generate(**request.inputs, do_sample=False, max_new_tokens=16)
    expected = ids[0, request.prompt_tokens :].tolist()
    for lane in LANES:
        *_, last = engine.run(request, lane, Settings(max_new_tokens=16))
        assert last.done
        assert last.trace.tokens == expected
        assert last.text == last.trace.text == engine.tokenizer.decode(expected, skip_special_tokens=True)
        assert last.prefill_s == request.prefill.seconds


def test_progress_streams_every_token_once(engine):
    request = engine.prepare("What?", PICTURE)
    seen = []
    for progress in engine.run(request, "recap", Settings(max_new_tokens=16, budget=8)):
        seen += progress.new_tokens
        assert progress.n_tokens == len(seen)
        assert (progress.step is None) == (progress.n_steps == 0)
        assert progress.trace.tokens == seen
        assert (progress.trace.stopped == "cancelled") != progress.done
    assert seen == progress.trace.tokens


def test_earlier_turns_come_before_the_question_and_the_picture_before_them(engine):
    request = engine.prepare("And now?", PICTURE, history=[("What was it?", "A circle.")])
    text = engine.tokenizer.decode(request.inputs["input_ids"][0])
    order = [text.index(part) for part in ("<|image_pad|>", "What was it?", "A circle.", "And now?")]
    assert order == sorted(order)
    assert text.count("<|vision_start|>") == 1


@pytest.mark.parametrize("name", ["<|im_end|>", "<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>"])
@pytest.mark.parametrize("image", [PICTURE, None])
def test_control_tokens_that_a_person_types_are_text(engine, name, image):
    def specials(question, history=()):
        ids = engine.prepare(question, image, history).inputs["input_ids"][0].tolist()
        return [token for token in ids if token in engine.tokenizer.all_special_ids or token < 7]

    assert specials(f"Say {name}!") == specials("Say it!")
    assert specials("Go on", [(name, name)]) == specials("Go on", [("a", "b")])


def test_text_without_control_tokens_is_untouched():
    names = ["<|im_end|>", "<image>"]
    assert as_plain_text("a < b | c > d <img>", names) == "a < b | c > d <img>"
    assert as_plain_text("x<image>", names) == f"x<{ZERO_WIDTH_SPACE}image>"


def test_questions_that_cannot_be_asked_are_refused(engine):
    with pytest.raises(RecapError, match="ask a question"):
        engine.prepare("  ", PICTURE)
    with pytest.raises(RecapError, match="tokens; the model can take"):
        engine.prepare("why " * 5000)
    with pytest.raises(RecapError, match="without a tokenizer"):
        tiny_engine("llama").prepare("hello")


def test_a_text_only_model_answers_questions_but_no_pictures(tmp_path):
    tokenizer = build_tokenizer(["What is it?"])
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    engine = Engine.load(tmp_path, device="cpu")
    traces = [engine.answer(engine.prepare("What is it?"), lane, Settings(max_new_tokens=8)) for lane in LANES]
    assert traces[0].tokens == traces[1].tokens == traces[2].tokens
    with pytest.raises(RecapError, match="text only"):
        engine.prepare("What is it?", PICTURE)


def test_models_that_cannot_be_had_are_refused_in_a_sentence(tmp_path, folder):
    CLIPConfig().save_pretrained(tmp_path / "clip")
    (tmp_path / "empty").mkdir()
    for name, reason in ((tmp_path / "clip", "not supported"), (tmp_path / "empty", "no config.json")):
        with pytest.raises(RecapError, match=reason) as caught:
            Engine.load(name, device="cpu")
        assert "\n" not in str(caught.value)
    with pytest.raises(RecapError, match="no device"):
        Engine.load(folder, device="cuda:9")
    with pytest.raises(RecapError, match="dtype"):
        Engine.load(folder, device="cpu", dtype="int3")


def test_a_repetition_penalty_of_the_checkpoint_does_not_change_greedy_answers(engine, folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    settings |= {"repetition_penalty": 1.5, "do_sample": True, "temperature": 0.1}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    penalised = Engine.load(tmp_path, device="cpu")
    assert penalised.target.stop_tokens == engine.target.stop_tokens != frozenset()
    request = penalised.prepare("What is in the picture?", PICTURE)
    with torch.no_grad():
        ids = penalised.target.model.generate(**request.inputs, do_sample=False, max_new_tokens=12)
    trace = penalised.answer(request, "recap", Settings(max_new_tokens=12))
    assert trace.tokens == ids[0, request.prompt_tokens :].tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": 0},
        {"budget": -1},
        {"budget": "many"},
        {"budget": 2.5},
        {"floor": 2.0},
        {"weighting": "best"},
        {"top_k": 0},
        {"max_depth": -1},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(RecapError, match=next(iter(wrong))):
        Settings(**wrong)


def test_the_command_line_answers_compares_and_writes_a_trace(folder, tmp_path, capsys):
    PICTURE.save(tmp_path / "p.png")
    arguments = ["ask", str(tmp_path / "p.png"), "What?", "--model", str(folder), "--max-new-tokens", "12"]
    assert main([*arguments, "--budget", "8", "--trace", str(tmp_path / "t.json.gz")]) == 0
    output = capsys.readouterr()
    assert "All lanes gave the same tokens." in output.out
    assert all(word in output.out for word in ("lane", "MAT", "draft", "speedup", *LANES))
    assert "recap: 12 tokens" in output.err
    assert list(RequestTrace.load(tmp_path / "t.json.gz").lanes) == list(LANES)
    assert main(["ask", str(tmp_path / "missing.png"), "What?", "--model", str(folder)]) == 1
    assert "There is no picture" in capsys.readouterr().err


def test_recording_asks_nothing_of_a_steps_clock(engine):
    """What the trace needs beyond the method is read after the clock has stopped."""
    request = engine.prepare("What?", PICTURE)
    for lane in LANES:
        reads = [engine._decoder(request, lane, Settings(record=record, budget=4)).reads for record in (True, False)]
        assert reads[0] == reads[1]


def test_the_command_line_records_the_lessons_traces(folder, tmp_path, capsys):
    arguments = ["record", "--model", str(folder), "--folder", str(tmp_path), "--max-new-tokens", "6", "--budget", "4"]
    assert main(arguments) == 0
    traces = {path.name: RequestTrace.load(path) for path in tmp_path.glob("*.json.gz")}
    assert set(traces) == {"description.json.gz", "table.json.gz", "two-turn.json.gz"}
    assert "two-turn.json.gz" in capsys.readouterr().out
    for name, trace in traces.items():
        assert list(trace.lanes) == list(LANES)
        assert len(trace.sensitivity.kl) == trace.lanes["ar"].n_tokens
        assert len(trace.history) == (name == "two-turn.json.gz")
        assert trace.lanes["recap"].request > 1, "memories are warm"
        with Image.open(tmp_path / f"{name.split('.')[0]}.png") as picture:
            assert picture.size == trace.image_size


def test_the_engine_knows_nothing_of_the_page():
    """One file alone, which the bench imports when it writes a report, knows plotly."""
    imported = set()
    root = Path(recap_engine.__file__).parent
    for file in set(root.rglob("*.py")) - {root / "bench" / "html.py"}:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    assert "transformers" in imported
    assert not imported & {"gradio", "plotly", "app"}


def test_reading_a_trace_needs_no_torch():
    code = "import recap_engine.trace, sys; print(*{'torch', 'transformers', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
