"""Loading a model by name or folder: known families only, safetensors only, never code from the model's repository."""

from pathlib import Path
from typing import NamedTuple

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)

from recap_engine.errors import RecapError
from recap_engine.models.families import Family, family_of

EMBEDDED = Path(__file__).parents[2] / "assets" / "model"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Loaded(NamedTuple):
    """A model on its device, and what turns questions into its inputs."""

    model: PreTrainedModel
    family: Family
    processor: ProcessorMixin | PreTrainedTokenizerBase
    name: str


def load(name_or_path: str | Path | None = None, device: str = "auto", dtype: str = "auto") -> Loaded:
    """A model of the hub or a local folder; None is the embedded one. Raises RecapError if it can't be had."""
    source = str(EMBEDDED if name_or_path is None else name_or_path)
    if name_or_path is None and not (EMBEDDED / "config.json").is_file():
        raise RecapError(f"The embedded model is missing: there is no config.json in {EMBEDDED}.")
    place = pick_device(device)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        family = family_of(config)
        kind = AutoModelForImageTextToText if family.vision else AutoModelForCausalLM
        model = kind.from_pretrained(
            source,
            config=config,
            dtype=pick_dtype(dtype, place),
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",  # takes the 4-D mask of a candidate tree
        )
        reader = AutoProcessor if family.vision else AutoTokenizer
        processor = reader.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RecapError(f"The model {source} cannot be loaded: {reason}") from error
    tokenizer = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
    make_greedy(model, tokenizer.eos_token_id)
    model.to(place)  # type: ignore[arg-type]  # transformers wraps Module.to
    lay_out(model)
    name = "embedded model" if name_or_path is None else Path(source).name if Path(source).is_dir() else source
    return Loaded(model, family, processor, name)


def lay_out(model: PreTrainedModel) -> None:
    """Turn the memory layout of a CPU's linear layers, not their values: rows of inputs side by side.

    A product of few rows with such a matrix takes a third less time here (MKL; 1 to 32 rows of 256 x 704, measured), and
    few rows is what decoding multiplies: one for autoregressive decoding, a tree's for verification.
    """
    if model.device.type == "cpu":
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.data = module.weight.data.T.contiguous().T


def make_greedy(model: PreTrainedModel, eos_token_id: int | None = None) -> None:
    """Reduce the generation settings to where an answer ends, so that `generate(do_sample=False)` is the plain argmax.

    Checkpoints may bring a repetition penalty or a temperature; greedy verification knows neither.
    """
    given = model.generation_config
    eos = given.eos_token_id if given.eos_token_id is not None else eos_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=given.bos_token_id, pad_token_id=given.pad_token_id, eos_token_id=eos
    )


def pick_device(wish: str) -> torch.device:
    """`auto`: a CUDA GPU, else Apple's, else the CPU. Raises RecapError for a device that isn't there."""
    if wish == "auto":
        wish = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(wish)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise RecapError(f"There is no device {wish!r} here.") from error
    return device


def pick_dtype(wish: str, device: torch.device) -> torch.dtype:
    """`auto`: half precision on a GPU, float32, in which decoding is exactly lossless, elsewhere."""
    if wish == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if wish not in DTYPES:
        raise RecapError(f"dtype must be auto or one of {', '.join(DTYPES)}.")
    return DTYPES[wish]
