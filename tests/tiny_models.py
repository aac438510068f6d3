"""Random models of every family, small enough to run in milliseconds, and prompts with random pictures for them."""

from collections.abc import Callable

import torch
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)

from recap_engine.engine import Engine
from recap_engine.models.families import family_of
from recap_engine.models.loading import make_greedy
from recap_engine.request import Request
from recap_engine.target import Target

VOCABULARY = 96
IMAGE, VISION_START, VISION_END, VIDEO = 90, 91, 92, 93  # control tokens; prompts draw their words below 80
WORDS = 80
WINDOW = 12  # rows that a layer with sliding attention sees: fewer than most prompts have
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
QWEN_IDS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
}
QWEN_VISION = {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
GRID = (1, 4, 6)  # frames, patch rows, patch columns
CLIP = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}


def _mrope(section: list[int], **more: object) -> dict:
    return TEXT | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": section, **more}}


def qwen2_vl() -> PreTrainedModel:
    vision = QWEN_VISION | {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    return Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(text_config=_mrope([2, 1, 1]), vision_config=vision, **QWEN_IDS)
    )


def qwen2_5_vl() -> PreTrainedModel:
    vision = QWEN_VISION | {
        "hidden_size": 16,
        "out_hidden_size": 32,
        "intermediate_size": 32,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    }
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=_mrope([2, 1, 1]), vision_config=vision, **QWEN_IDS)
    )


def qwen3_vl() -> PreTrainedModel:
    vision = QWEN_VISION | {
        "hidden_size": 16,
        "out_hidden_size": 32,
        "intermediate_size": 32,
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": [0],
    }
    text = _mrope([2, 1, 1], mrope_interleaved=True)
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision, **QWEN_IDS))


def llava_next(text: PreTrainedConfig | None = None) -> PreTrainedModel:
    return LlavaNextForConditionalGeneration(
        LlavaNextConfig(
            vision_config=CLIPVisionConfig(**CLIP),
            text_config=text or LlamaConfig(**TEXT),
            image_token_id=IMAGE,
            image_grid_pinpoints=[[16, 32], [32, 16], [32, 32]],
        )
    )


def llava_next_mistral() -> PreTrainedModel:
    return llava_next(MistralConfig(**TEXT, sliding_window=None))


def llava() -> PreTrainedModel:
    return LlavaForConditionalGeneration(
        LlavaConfig(vision_config=CLIPVisionConfig(**CLIP), text_config=LlamaConfig(**TEXT), image_token_id=IMAGE)
    )


def idefics3() -> PreTrainedModel:
    return Idefics3ForConditionalGeneration(
        Idefics3Config(vision_config=CLIP, text_config=LlamaConfig(**TEXT), image_token_id=IMAGE, scale_factor=2)
    )


def smolvlm() -> PreTrainedModel:
    return SmolVLMForConditionalGeneration(
        SmolVLMConfig(vision_config=CLIP, text_config=LlamaConfig(**TEXT), image_token_id=IMAGE, scale_factor=2)
    )


def gemma3() -> PreTrainedModel:
    """One layer of sliding attention and one of full, over a picture whose tokens all see each other."""
    sizes = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
    return Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=Gemma3TextConfig(**TEXT, **sizes, query_pre_attn_scalar=8),
            vision_config=SiglipVisionConfig(**CLIP),
            mm_tokens_per_image=4,
            image_token_index=IMAGE,
            boi_token_index=VISION_START,
            eoi_token_index=VISION_END,
        )
    )


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**TEXT))


def mistral() -> PreTrainedModel:
    """Sliding attention in every layer."""
    return MistralForCausalLM(MistralConfig(**TEXT, sliding_window=WINDOW))


def qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**TEXT))


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**TEXT))


def gpt_neox() -> PreTrainedModel:
    return GPTNeoXForCausalLM(GPTNeoXConfig(**TEXT))


BUILDERS: dict[str, Callable[[], PreTrainedModel]] = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "llava_next": llava_next,
    "llava_next_mistral": llava_next_mistral,
    "llava": llava,
    "idefics3": idefics3,
    "smolvlm": smolvlm,
    "gemma3": gemma3,
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gpt_neox": gpt_neox,
}


def tiny_model(kind: str, seed: int = 0, spread: float = 1.0) -> PreTrainedModel:
    """A random model of the family, in float32. A larger `spread` of its weights makes its predictions sharper."""
    torch.manual_seed(seed)
    model = BUILDERS[kind]()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, spread / weight.shape[-1] ** 0.5)
            elif "bias" in name:
                weight.zero_()
    return model


def tiny_engine(kind: str, seed: int = 0, spread: float = 1.0) -> Engine:
    """The same as an engine without a tokenizer: requests are made from inputs."""
    model = tiny_model(kind, seed, spread)
    make_greedy(model)
    return Engine(Target(model, family_of(model.config)), model_name=f"tiny {kind}")


def picture_inputs(kind: str, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], list[int]]:
    """A random picture for the family, and the prompt tokens that stand for it."""
    if kind.endswith("_vl"):
        patches = GRID[1] * GRID[2]
        pixels = torch.randn(patches, 3 * 2 * 4 * 4, generator=generator)
        inputs = {"pixel_values": pixels, "image_grid_thw": torch.tensor([GRID])}
        return inputs, [VISION_START, *[IMAGE] * (patches // 4), VISION_END]
    if kind.startswith("llava_next"):
        pixels = torch.randn(1, 3, 3, 16, 16, generator=generator)  # the whole picture and two tiles of it
        return {"pixel_values": pixels, "image_sizes": torch.tensor([[16, 32]])}, [IMAGE] * (4 + 8 + 2)
    if kind == "llava":
        return {"pixel_values": torch.randn(1, 3, 16, 16, generator=generator)}, [IMAGE] * 4
    if kind in ("idefics3", "smolvlm"):
        return {"pixel_values": torch.randn(1, 1, 3, 16, 16, generator=generator)}, [IMAGE]
    if kind == "gemma3":
        pixels = torch.randn(1, 3, 16, 16, generator=generator)
        return {"pixel_values": pixels}, [VISION_START, *[IMAGE] * 4, VISION_END]
    return {}, []


def random_request(kind: str, seed: int, words: int = 12, picture: bool = True) -> Request:
    """`words` random tokens, some repeated, around a random picture."""
    generator = torch.Generator().manual_seed(seed)
    inputs, placeholders = picture_inputs(kind, generator) if picture else ({}, [])
    text = torch.randint(0, WORDS, (words,), generator=generator).tolist()
    ids = [*text[: words // 3], *placeholders, *text[words // 3 :]]
    inputs["input_ids"] = torch.tensor([ids])
    if kind.endswith("_vl") or kind == "gemma3":
        name = "token_type_ids" if kind == "gemma3" else "mm_token_type_ids"
        inputs[name] = (inputs["input_ids"] == IMAGE).int()
    return Request(inputs, question=f"random prompt {seed}")


@torch.no_grad()
def generated(engine: Engine, request: Request, max_new_tokens: int) -> list[int]:
    """What the stock `generate` answers greedily."""
    ids = request.inputs["input_ids"]
    inputs = {"attention_mask": torch.ones_like(ids)} | request.inputs
    output = engine.target.model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)
    return output[0, ids.shape[1] :].tolist()
