"""The embedded model's parts: a small Qwen3-VL in stock classes, its byte-level tokenizer and its processor.

Qwen3-VL rather than Qwen2.5-VL: at this size its learned position embeddings find *where* a thing is much sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2TokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from .canvas import TILE, UNITS

VOCABULARY = 1536
GRID = UNITS // TILE  # visual tokens a side
VISUAL_TOKENS = GRID * GRID
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif part.type == 'text' -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE of VOCABULARY entries trained on the texts, split as Qwen2 does it: any input encodes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern=Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Qwen2TokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        additional_special_tokens=list(SPECIAL[1:]),
        model_max_length=4096,
    )


def build_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLProcessor:
    """Every picture is brought to about UNITS x UNITS pixels, the only size the model was taught."""
    pixels = {"shortest_edge": UNITS * UNITS, "longest_edge": UNITS * UNITS}
    shared = dict(
        patch_size=TILE // 2,
        merge_size=2,
        temporal_patch_size=2,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size=pixels,
    )
    return Qwen3VLProcessor(
        Qwen2VLImageProcessor(**shared), tokenizer, Qwen3VLVideoProcessor(**shared), chat_template=CHAT_TEMPLATE
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLForConditionalGeneration:
    """A fresh model with random weights."""
    ids = dict(zip(SPECIAL, tokenizer.convert_tokens_to_ids(list(SPECIAL))))
    config = Qwen3VLConfig(
        vision_config=dict(
            depth=5,
            hidden_size=192,
            intermediate_size=576,
            num_heads=4,
            patch_size=TILE // 2,
            spatial_merge_size=2,
            temporal_patch_size=2,
            out_hidden_size=256,
            num_position_embeddings=(2 * GRID) ** 2,
            deepstack_visual_indexes=[2],
        ),
        text_config=dict(
            vocab_size=len(tokenizer),
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=5,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="default", rope_theta=10_000.0, mrope_section=[6, 5, 5], mrope_interleaved=True
            ),
            bos_token_id=None,
            eos_token_id=ids["<|im_end|>"],
            pad_token_id=ids["<|endoftext|>"],
        ),
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    model = Qwen3VLForConditionalGeneration(config)
    model.generation_config.update(
        do_sample=False, eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]], pad_token_id=ids["<|endoftext|>"]
    )
    return model


def save(folder: Path, model: Qwen3VLForConditionalGeneration, processor: Qwen3VLProcessor) -> None:
    """Write the model with safetensors shards below 10 MB, and its processor, in the stock layout.

    Its weights, which stay float32, are rounded to half-precision numbers first, so that a CPU can pack them.
    """
    for weight in model.parameters():
        weight.data = weight.data.half().float()
    model.save_pretrained(folder, max_shard_size="9MB")
    processor.save_pretrained(folder)
