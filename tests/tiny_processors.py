"""The tiny models as the Hub would hold them: a folder with config, weights, tokenizer, processor and chat template.

Every family keeps the classes, files and placeholders of its published checkpoints; only sizes are shrunk, and words
are single characters. The chat templates are ours, in the shape of the published ones.
"""

import string
from collections.abc import Callable
from pathlib import Path

from tiny_models import WORDS, tiny_model
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    CLIPImageProcessor,
    Gemma3ImageProcessor,
    Gemma3Processor,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    LlavaProcessor,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

CHARACTERS = (string.ascii_letters + string.digits + " \n.,:?!'-()<>|[]/_")[:WORDS]
UNKNOWN = CHARACTERS.index("?")
BOS, EOS, PAD = "<s>", "</s>", "<pad>"
TILES = [f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)]  # Idefics3 names a picture's parts
NAMED = ("image", "vision_start", "vision_end", "video", "fake", "global")  # in the order of tiny_models' ids

QWEN = """\
{% if messages[0].role != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
VICUNA = """\
{% for message in messages %}{{ message.role.upper() + ': ' }}\
{% for part in message.content | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}\
{% for part in message.content | selectattr('type', 'equalto', 'text') %}{{ part.text + ' ' }}{% endfor %}\
{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"""
MISTRAL = """\
{% for message in messages %}{% if message.role == 'user' %}[INST] \
{% for part in message.content | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}\
{% for part in message.content | selectattr('type', 'equalto', 'text') %}{{ part.text }}{% endfor %} [/INST]\
{% else %} {{ message.content[0].text }}</s> {% endif %}{% endfor %}"""
IDEFICS = """\
<|im_start|>{% for message in messages %}{{ message.role | capitalize }}\
{{ ':' if message.content[0].type == 'image' else ': ' }}{% for part in message.content %}\
{{ part.text if part.type == 'text' else '<image>' }}{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""
GEMMA = """\
{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message.role | replace('assistant', 'model') }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}\
{{ '<start_of_image>' if part.type == 'image' else part.text }}{% endfor %}{% endif %}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
CHATML = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer(
    start: str = "<|im_start|>", end: str = "<|im_end|>", prefix: str = "", template: str | None = None, **named: str
) -> PreTrainedTokenizerFast:
    """One character a token. `prefix` is put before every text; `named` are the family's own names of some of NAMED."""
    control = [BOS, EOS, PAD, start, end, *TILES, "<unused>", *(named.get(name, f"<{name}>") for name in NAMED)]
    words = {text: number for number, text in enumerate([*CHARACTERS, *control])}
    core = Tokenizer(models.WordLevel(words, unk_token=CHARACTERS[UNKNOWN]))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    core.decoder = decoders.Fuse()
    if prefix:
        tokens = [(prefix, words[prefix])]
        core.post_processor = processors.TemplateProcessing(single=f"{prefix} $A", special_tokens=tokens)
    attributes = {f"{name}_token": text for name, text in named.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        extra_special_tokens=attributes | {"boi_token": control[11], "eoi_token": control[12]},  # Gemma's names
        additional_special_tokens=[text for text in control if text not in (BOS, EOS, PAD)],
        chat_template=template,
    )


def qwen(kind: str) -> ProcessorMixin:
    """Dynamic resolution: 4 to 24 tokens for a picture, each of 8 x 8 pixels."""
    names = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    words = tokenizer(vision_start="<|vision_start|>", vision_end="<|vision_end|>", **names)
    size = {"shortest_edge": 4 * 8 * 8, "longest_edge": 24 * 8 * 8}
    patches = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "size": size}
    image = Qwen2VLImageProcessor(**patches)
    if kind == "qwen3_vl":
        return Qwen3VLProcessor(image, words, Qwen3VLVideoProcessor(**patches), chat_template=QWEN)
    stock = Qwen2VLProcessor if kind == "qwen2_vl" else Qwen2_5_VLProcessor
    return stock(image, words, Qwen2VLVideoProcessor(**patches), chat_template=QWEN)


def llava(kind: str) -> ProcessorMixin:
    """LLaVA-1.5 sees one picture of 16 x 16; LLaVA-NeXT adds up to four tiles of that size."""
    words = tokenizer(prefix=BOS, image="<image>")
    size = {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}
    features = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    if kind == "llava":
        return LlavaProcessor(CLIPImageProcessor(**size), words, chat_template=VICUNA, **features)
    image = LlavaNextImageProcessor(**size, image_grid_pinpoints=[[16, 32], [32, 16], [32, 32]])
    template = MISTRAL if kind == "llava_next_mistral" else VICUNA
    return LlavaNextProcessor(image, words, chat_template=template, **features)


def idefics(kind: str) -> ProcessorMixin:
    """The whole picture as one token, and before it, if it is larger than 16 x 16, up to 2 x 2 tiles of one each."""
    words = tokenizer(
        end="<end_of_utterance>", image="<image>", fake="<fake_token_around_image>", **{"global": "<global-img>"}
    )
    sizes = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}}
    if kind == "idefics3":
        return Idefics3Processor(Idefics3ImageProcessor(**sizes), words, image_seq_len=1, chat_template=IDEFICS)
    video = SmolVLMVideoProcessor(**sizes)
    return SmolVLMProcessor(SmolVLMImageProcessor(**sizes), words, video, image_seq_len=1, chat_template=IDEFICS)


def gemma(kind: str) -> ProcessorMixin:
    """Static resolution: four tokens for any picture."""
    names = {"vision_start": "<start_of_image>", "vision_end": "<end_of_image>", "image": "<image_soft_token>"}
    words = tokenizer("<start_of_turn>", "<end_of_turn>", BOS, **names)
    image = Gemma3ImageProcessor(size={"height": 16, "width": 16})
    return Gemma3Processor(image, words, chat_template=GEMMA, image_seq_length=4)


def text(kind: str) -> PreTrainedTokenizerBase:
    return tokenizer(template=None if kind == "gpt_neox" else CHATML)


PROCESSORS: dict[str, Callable[[str], ProcessorMixin | PreTrainedTokenizerBase]] = {
    "qwen2_vl": qwen,
    "qwen2_5_vl": qwen,
    "qwen3_vl": qwen,
    "llava_next": llava,
    "llava_next_mistral": llava,
    "llava": llava,
    "idefics3": idefics,
    "smolvlm": idefics,
    "gemma3": gemma,
    "llama": text,
    "mistral": text,
    "qwen2": text,
    "qwen3": text,
    "gpt_neox": text,
}


def save_tiny(kind: str, folder: Path, seed: int = 0) -> Path:
    """Write a random model of the family and its processor; returns the folder."""
    tiny_model(kind, seed).save_pretrained(folder)
    PROCESSORS[kind](kind).save_pretrained(folder)
    return folder
