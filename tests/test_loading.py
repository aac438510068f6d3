"""From a name to a model: what is downloaded, where it goes, and one clear sentence for whatever can be wrong."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_hub import fake_hub
from tiny_models import TEXT, generated, random_request, tiny_model
from tiny_processors import save_tiny
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    BloomConfig,
    BloomForCausalLM,
    CLIPConfig,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicCache

from recap_engine.engine import LANES, Engine
from recap_engine.errors import RecapError
from recap_engine.kvcache import KVBuffer
from recap_engine.models import hub, loading, placement
from recap_engine.models.catalogue import CATALOGUE
from recap_engine.models.check import check_tree
from recap_engine.models.families import FAMILIES
from recap_engine.models.families import TEXT as TEXT_ONLY
from recap_engine.models.loading import load, make_greedy
from recap_engine.models.placement import place
from recap_engine.settings import Settings
from recap_engine.target import Target
from recap_engine.tree import CandidateTree

GPU = torch.device("cuda", 0)


@pytest.fixture(scope="module")
def llava(tmp_path_factory) -> Path:
    return save_tiny("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture
def copy_of(tmp_path):
    """A folder's copy that a test may damage."""

    def copied(folder: Path) -> Path:
        return Path(shutil.copytree(folder, tmp_path / "damaged"))

    return copied


def refusal(name: str | Path, **options: str) -> str:
    """What a person reads who asks for a model that can't be had."""
    with pytest.raises(RecapError) as caught:
        Engine.load(name, **{"device": "cpu"} | options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    return sentence


# --- the Hub


def test_a_download_takes_safetensors_and_text_only_and_is_not_asked_for_twice(llava, copy_of, tmp_path, monkeypatch):
    folder = copy_of(llava)
    for extra in ("modeling.py", "pytorch_model.bin", "model.fp16.safetensors", "README.md"):
        (folder / extra).write_text("not wanted")
    seen = []
    with fake_hub(monkeypatch, tmp_path / "cache", {"me/llava": folder}) as server:
        assert not hub.on_disk("me/llava")
        loaded = load("me/llava", device="cpu", progress=lambda here, whole: seen.append((here, whole)))
        assert loaded.name == "me/llava"
        assert set(server.served) == {file.name for file in llava.iterdir()}
        size = (llava / "model.safetensors").stat().st_size
        assert seen[-1] == (size, size)
        assert all(here <= whole == size for here, whole in seen)
        assert hub.on_disk("me/llava")
        server.served.clear()
        load("me/llava", device="cpu")
        assert not server.served
    load("me/llava", device="cpu")  # and without a network


def test_models_that_the_hub_does_not_give(llava, llama, copy_of, tmp_path, monkeypatch):
    pickled = copy_of(llama)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    models = {"me/pickled": pickled, "me/gated": llava, "me/large": llava}
    with fake_hub(monkeypatch, tmp_path / "cache", models, gated={"me/gated"}):
        assert "pickle files only" in refusal("me/pickled")
        assert "accept its licence" in refusal("me/gated")
        assert "no public model" in refusal("me/unknown")
        assert "neither a folder here nor the name of a model" in refusal("what is this?")
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 10, 0))
        assert "on disk and 0.0 GB are free" in refusal("me/large")
    assert "cannot be reached" in refusal("me/other")
    assert not hub.on_disk("me/large")


@pytest.mark.parametrize("name", ["/nowhere", "./nowhere", "~/nowhere", "a/b/c"])
def test_paths_without_a_folder(name):
    assert refusal(name) == f"There is no folder {name}."
    assert not hub.on_disk(name)


# --- the folder


def test_folders_without_a_model(tmp_path, copy_of, llava):
    assert "no config.json" in refusal(tmp_path)
    folder = copy_of(llava)
    (folder / "config.json").write_text("{")
    assert "cannot be read" in refusal(folder)


@pytest.mark.parametrize("config", [CLIPConfig(), {"model_type": "ours", "auto_map": {"AutoModel": "ours.Model"}}])
def test_kinds_of_models_that_are_not_known(tmp_path, config):
    """Nothing of a model's own code is looked at."""
    text = json.dumps(config) if isinstance(config, dict) else config.to_json_string()
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "ours.py").write_text("raise SystemExit('this ran')")
    assert "are not supported" in refusal(tmp_path)


@pytest.mark.parametrize("config", [MambaConfig(), Llama4TextConfig(num_hidden_layers=2)])
def test_layers_that_cannot_verify_a_tree_are_refused_before_anything_large(tmp_path, config):
    config.save_pretrained(tmp_path)
    assert "cannot verify a tree" in refusal(tmp_path)


def test_processors_that_are_missing(copy_of, llava, monkeypatch):
    folder = copy_of(llava)
    (folder / "processor_config.json").unlink()
    sentence = refusal(folder)
    assert "missing or damaged" in sentence
    assert str(folder) not in sentence
    shutil.copy(llava / "processor_config.json", folder)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert "missing or damaged" in refusal(folder)


def test_packages_that_a_processor_needs(tmp_path, monkeypatch):
    folder = save_tiny("smolvlm", tmp_path)
    monkeypatch.setattr(sys.modules["transformers.models.smolvlm.processing_smolvlm"], "num2words", None)
    assert "num2words" in refusal(folder)


def test_weights_that_are_missing_damaged_or_not_enough(copy_of, llama):
    folder = copy_of(llama)
    weights = folder / "model.safetensors"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "lack" in refusal(folder)
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))
    assert "cannot be read" in refusal(folder)
    (folder / "config.json").write_text(json.dumps(config))
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "cannot be read" in refusal(folder)
    weights.rename(folder / "pytorch_model.bin")
    assert "pickle files only" in refusal(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "no weights" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    (folder / "model-2.safetensors").touch()
    assert "Some of the weights" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text("[]")
    assert "damaged" in refusal(folder)


# --- the place


def test_a_model_that_does_not_fit_names_what_would(llama, monkeypatch):
    monkeypatch.setattr(placement, "LEAST", 0)
    whole = (llama / "model.safetensors").stat().st_size
    monkeypatch.setattr(placement, "free_memory", lambda device: whole * 0.7)
    sentence = refusal(llama, dtype="float32")
    assert "as float32" in sentence
    assert "choose dtype bfloat16 or dtype 4bit or a smaller model" in sentence
    assert load(llama, device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16
    monkeypatch.setattr(placement, "free_memory", lambda device: 1)
    assert "choose a smaller model" in refusal(llama)


def test_memory_that_runs_out_while_loading(llama, monkeypatch):
    def full(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(PreTrainedModel, "to", full)
    assert "ran out while" in refusal(llama)


def test_a_model_larger_than_one_gpu_is_spread_if_accelerate_is_there(monkeypatch):
    config = LlamaConfig(**TEXT)
    monkeypatch.setattr(placement, "LEAST", 0)
    monkeypatch.setattr(placement, "pick_device", lambda wish: GPU)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(placement, "free_memory", lambda device: 70_000)  # half of what it needs, on each of three
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: object())
    where = place(config, AutoModelForCausalLM, dtype="float32", name="it")
    assert where.placed
    assert where.options["device_map"] == "auto"
    with pytest.raises(RecapError, match="needs about"):
        place(config, AutoModelForCausalLM, device="cuda:0", dtype="float32", name="it")
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecapError, match="needs about"):
        place(config, AutoModelForCausalLM, dtype="float32", name="it")


def test_four_bits_need_bitsandbytes(llama, monkeypatch):
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: None)
    assert "pip install bitsandbytes" in refusal(llama, dtype="4bit")
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: object())
    where = place(LlamaConfig(**TEXT), AutoModelForCausalLM, "cpu", "4bit")
    assert where.options["quantization_config"].load_in_4bit
    assert where.options["device_map"] == {"": torch.device("cpu")}


def test_a_spread_model_gives_the_same_answers(llama, monkeypatch, tmp_path):
    """Some layers on the CPU, the others on disk, brought in by accelerate's hooks."""
    pytest.importorskip("accelerate")
    layers = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu"}
    options = {"dtype": torch.float32, "device_map": layers | {"model.rotary_emb": "cpu", "lm_head": "disk"}}
    spread = placement.Placement(torch.device("cpu"), options | {"offload_folder": str(tmp_path)})
    plain = Engine.load(llama, device="cpu")
    monkeypatch.setattr(loading, "place", lambda *args: spread)
    engine = Engine.load(llama)
    request = plain.prepare("What is it?")
    expected = generated(plain, request, 12)
    request = engine.prepare("What is it?")
    for lane in LANES:
        assert engine.answer(request, lane, Settings(max_new_tokens=12, budget=16)).tokens == expected


def test_layers_on_several_devices_keep_their_keys_there():
    """`meta` stands for a second GPU: what it holds has a shape and a place, but no values."""
    engine = Engine(Target(tiny_model("llama"), TEXT_ONLY))
    prefill = engine.target.prefill(random_request("llama", 0).inputs)
    prefilled = DynamicCache()
    for number, device in enumerate(("cpu", "meta", "cpu")):
        layer = prefill.cache.layers[number % 2]
        prefilled.update(layer.keys.to(device), layer.values.to(device), number)
    buffer = KVBuffer(prefilled, prefill.next_position, 8, 4)
    assert [layer.keys.device.type for layer in buffer.layers] == ["cpu", "meta", "cpu"]
    assert len(buffer.stacks) == 2  # keys and values together, on two devices
    rows = torch.arange(5.0).view(1, 1, 5, 1).expand(1, *buffer.layers[0].keys.shape[1:2], 5, 8)
    for layer in buffer.layers:
        layer.update(rows.to(layer.keys.device), rows.to(layer.keys.device))
    start = buffer.length
    buffer.commit([1, 3])  # the rows of nodes 1 and 3 move up behind the root's
    assert buffer.layers[2].keys[0, 0, start : start + 3, 0].tolist() == [0.0, 2.0, 4.0]


# --- any causal model


@pytest.mark.parametrize("kind", ["gemma2", "granite"])
def test_text_models_with_scaled_or_bounded_logits_are_taken(kind):
    """Gemma-2 has both kinds of attention, bounds its logits, and does not know SDPA."""
    torch.manual_seed(0)
    layers = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 8}
    gemma = Gemma2Config(**TEXT, **layers, final_logit_softcapping=2.0, attn_implementation="eager")
    model = {
        "gemma2": lambda: Gemma2ForCausalLM(gemma),
        "granite": lambda: GraniteForCausalLM(GraniteConfig(**TEXT, logits_scaling=0.25)),
    }[kind]()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, weight.shape[-1] ** -0.5)
    make_greedy(model)
    engine = Engine(Target(model, TEXT_ONLY))
    check_tree(engine.target)
    request = random_request("llama", 0, words=20)
    with torch.inference_mode():
        whole = model(**request.inputs).logits[0]
        own = engine.target.logits(engine.target.prefill(request.inputs).hidden)
    assert torch.allclose(own, whole, atol=1e-5)
    for lane in LANES:
        assert engine.answer(request, lane, Settings(max_new_tokens=12)).tokens == generated(engine, request, 12)


@pytest.mark.parametrize(
    "model",
    [
        lambda: BloomForCausalLM(BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4)),
        lambda: BertLMHeadModel(BertConfig(**TEXT, is_decoder=False)),
        lambda: Llama4ForCausalLM(Llama4TextConfig(**TEXT, attention_chunk_size=8)),
    ],
)
def test_text_models_that_a_tree_would_mislead_are_refused(model):
    with pytest.raises(RecapError, match="tree"):
        check_tree(Target(model(), TEXT_ONLY))


def test_the_check_finds_paths_that_are_mixed(monkeypatch):
    """A mask that forgets the tree lets a node see its siblings."""
    target = Target(tiny_model("llama"), TEXT_ONLY)
    check_tree(target)
    everything_before = np.triu(np.full((6, 6), -np.inf, dtype=np.float32), 1)
    monkeypatch.setattr(CandidateTree, "mask", lambda tree, hidden: everything_before)
    with pytest.raises(RecapError, match="mixes the paths"):
        check_tree(target)


# --- the list


def test_the_list_of_known_models(tmp_path, monkeypatch):
    names = [known.name for known in CATALOGUE]
    assert len(set(names)) == len(names)
    families = {family.name for family in FAMILIES.values()} | {TEXT_ONLY.name}
    for known in CATALOGUE:
        assert known.family in families
        assert known.licence
        assert known.weights * 2 <= known.size < known.memory(4) < 45
    with fake_hub(monkeypatch, tmp_path, {}):
        assert not any(known.on_disk for known in CATALOGUE)
