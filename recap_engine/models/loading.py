"""Loading a model by name or folder: known families only, safetensors only, never code from the model's repository."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)

from recap_engine.errors import RecapError, first_line
from recap_engine.models import hub
from recap_engine.models.families import Family, attention_windows, family_named
from recap_engine.models.packing import pack
from recap_engine.models.placement import FOUR_BIT, Placement, place

EMBEDDED = Path(__file__).parents[2] / "assets" / "model"
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError, SafetensorError)


class Loaded(NamedTuple):
    """A model on its device, and what turns questions into its inputs."""

    model: PreTrainedModel
    family: Family
    processor: ProcessorMixin | PreTrainedTokenizerBase
    name: str
    revision: str


def load(
    name_or_path: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: hub.Downloaded | None = None,
) -> Loaded:
    """A model of the hub or a local folder; None is the embedded one. `progress` hears of a download's bytes.

    What can go wrong is looked at from the quick to the slow: name, kind, processor, memory, weights. Raises
    RecapError with one sentence that says which, and the way out.
    """
    if name_or_path is None and not EMBEDDED.is_dir():
        raise RecapError("The embedded model is not here: there is no folder assets/model beside the code.")
    source = str(EMBEDDED if name_or_path is None else name_or_path)
    name = "embedded model" if name_or_path is None else Path(source).name if Path(source).is_dir() else source
    local = hub.local_folder(source)
    folder = local or hub.download_plain(source)
    config, family = read_config(folder, name)
    processor = read_processor(folder, family, name)
    build = AutoModelForImageTextToText if family.vision else AutoModelForCausalLM
    where = place(config, build, device, dtype, name)
    if local is None:
        hub.download_weights(source, folder, progress)
    elif hub.missing_weights(folder):
        raise hub.no_weights(name, [file.name for file in folder.iterdir()])
    model = read_weights(folder, config, build, where, name)
    tokenizer = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
    make_greedy(model, tokenizer.eos_token_id)
    return Loaded(model, family, processor, name, hub.revision_of(folder))


def read_config(folder: Path, name: str) -> tuple[PretrainedConfig, Family]:
    """The configuration in a folder and the family it belongs to. Raises RecapError."""
    file = folder / "config.json"
    if not file.is_file():
        raise RecapError(f"There is no model in {name}: it has no config.json.")
    try:
        family = family_named(str(json.loads(file.read_text("utf-8"))["model_type"]))
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except READ_ERRORS as error:
        raise RecapError(f"The configuration of {name} cannot be read ({reason(error, folder)}).") from error
    attention_windows(config)  # refuses what can't verify a tree before anything large is downloaded
    return config, family


def read_processor(folder: Path, family: Family, name: str) -> ProcessorMixin | PreTrainedTokenizerBase:
    """The processor of a vision model or the tokenizer of a text-only one. Raises RecapError."""
    reader: Any = AutoProcessor if family.vision else AutoTokenizer
    try:
        return reader.from_pretrained(folder, trust_remote_code=False)
    except ImportError as error:
        raise RecapError(f"The processor of {name} needs a package: {reason(error, folder)}") from error
    except READ_ERRORS as error:
        raise RecapError(
            f"The processor files of {name} are missing or damaged ({reason(error, folder)}): download it again, with "
            "processor_config.json or preprocessor_config.json, and the tokenizer's files."
        ) from error


def read_weights(folder: Path, config: PretrainedConfig, build: Any, where: Placement, name: str) -> PreTrainedModel:
    """The model on its device. Raises RecapError if its weights are damaged, incomplete, or too large after all."""
    try:
        model, report = build.from_pretrained(
            folder,
            config=config,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **where.options,
        )
        if not where.placed:
            model.to(where.device)
            pack(model)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise RecapError(
            f"The memory of {where.device} ran out while {name} was loaded: choose a smaller model or dtype {FOUR_BIT}."
        ) from error
    except READ_ERRORS as error:
        raise RecapError(f"The weights of {name} cannot be read ({reason(error, folder)}).") from error
    if report["missing_keys"]:
        raise RecapError(f"The weights of {name} lack {len(report['missing_keys'])} of its parts; download it again.")
    return model


def reason(error: BaseException, folder: Path) -> str:
    """The first line of an error, without the path of the model's folder."""
    return first_line(error).replace(str(folder), "its folder")


def make_greedy(model: PreTrainedModel, eos_token_id: int | None = None) -> None:
    """Reduce the generation settings to where an answer ends, so that `generate(do_sample=False)` is the plain argmax.

    Checkpoints may bring a repetition penalty or a temperature; greedy verification knows neither.
    """
    given = model.generation_config
    eos = given.eos_token_id if given.eos_token_id is not None else eos_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=given.bos_token_id, pad_token_id=given.pad_token_id, eos_token_id=eos
    )
