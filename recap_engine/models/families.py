"""The families of models this engine knows, by transformers' `model_type`; no remote code.

A family differs from another in two things only: which token stands for its picture, and how positions are counted.
Everything else (templates, placeholders, tiles) is done by its own processor. Adding one is a task of some 20 lines:

1. Here: a line in FAMILIES; if a picture's tokens do not take one position each, how they do in `prompt_positions`.
2. `tests/tiny_models.py`: a function that builds the model with random weights and tiny sizes, its name in BUILDERS,
   and a random picture as its inputs in `picture_inputs`.
3. `tests/tiny_processors.py`: a function that builds its processor, its name in PROCESSORS.
4. `pytest tests/test_lossless.py tests/test_families.py -k NAME`: every lane must give the ids of `generate`.
5. `PYTHONPATH=. python tests/test_families.py` prints the table of the README with a line for it.

Text-only models need no line: any causal model that passes `check.check_tree` when it is loaded is taken.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from recap_engine.errors import RecapError


@dataclass(frozen=True)
class Family:
    """What the engine must know of a kind of model."""

    name: str
    vision: bool = True
    mrope: bool = False  # rotary positions on three axes (time, height, width); equal for text

    def image_token(self, config: PretrainedConfig) -> int | None:
        """Id of the placeholder that stands for the picture in a prompt; None if the family reads text only."""
        if not self.vision:
            return None
        token = getattr(config, "image_token_id", None)
        return getattr(config, "image_token_index", None) if token is None else token


TEXT = Family("text-only", vision=False)
FAMILIES = {
    "qwen2_vl": Family("Qwen2-VL", mrope=True),
    "qwen2_5_vl": Family("Qwen2.5-VL", mrope=True),
    "qwen3_vl": Family("Qwen3-VL", mrope=True),
    "llava_next": Family("LLaVA-NeXT"),
    "llava": Family("LLaVA-1.5"),
    "idefics3": Family("Idefics3"),
    "smolvlm": Family("SmolVLM"),
    "gemma3": Family("Gemma-3"),
}


def family_named(kind: str) -> Family:
    """The family of a `model_type`. Raises RecapError if there is none."""
    if kind in FAMILIES:
        return FAMILIES[kind]
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return TEXT
    known = ", ".join(family.name for family in FAMILIES.values())
    raise RecapError(f"Models of the kind {kind!r} are not supported; these are: {known}, and text-only causal models.")


def family_of(config: PretrainedConfig) -> Family:
    """The family of a configuration. Raises RecapError if there is none."""
    return family_named(config.model_type)


def prompt_positions(model: PreTrainedModel, family: Family, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Rotary positions of a prompt: [1, P], or [3, 1, P] where a picture spreads over M-RoPE's three axes."""
    ids: Any = inputs["input_ids"]  # [1, P]
    if family.mrope and "image_grid_thw" in inputs:
        kinds = inputs.get("mm_token_type_ids")
        if kinds is None:
            kinds = (ids == family.image_token(model.config)).to(torch.int32)  # 0 text, 1 image
        base: Any = model.base_model
        positions, _ = base.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=inputs["image_grid_thw"])
        return positions
    return torch.arange(ids.shape[1], device=ids.device)[None]


def attention_windows(config: PretrainedConfig) -> dict[str, int | None]:
    """How many rows each kind of attention layer sees, up to and with its own; None is all of them.

    Raises RecapError for a model with layers in which a mask cannot keep a tree's paths apart.
    """
    kinds, options = get_layer_types_and_kwargs(config.get_text_config())
    layers = {(kind, option.get("sliding_window")) for kind, option in zip(kinds, options, strict=True)}
    windows = dict(layers)
    if not set(windows) <= {"full_attention", "sliding_attention"} or len(windows) < len(layers):
        others = ", ".join(sorted(set(windows) - {"full_attention", "sliding_attention"})) or "windows of several sizes"
        raise RecapError(f"This model has layers that cannot verify a tree of candidates in one pass ({others}).")
    return windows
