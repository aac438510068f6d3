"""A question, a picture and earlier turns as model inputs, through the model's own chat template and processor.

What a person types is text: a `<|im_end|>` or `<image>` in a question must not become the control token of that name.
Such names are broken up by an invisible zero-width space before the template sees them; text without them is untouched.
"""

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from recap_engine.errors import RecapError

ZERO_WIDTH_SPACE = "\u200b"
Turn = tuple[str, str]  # question, answer


def build_inputs(
    processor: ProcessorMixin | PreTrainedTokenizerBase,
    question: str,
    image: Image.Image | None,
    history: Sequence[Turn] = (),
) -> dict[str, torch.Tensor]:
    """Model inputs of a batch of one. The picture belongs to the first turn. Raises RecapError if it doesn't fit."""
    if image is not None and not isinstance(processor, ProcessorMixin):
        raise RecapError("This model reads text only; ask it without a picture.")
    tokenizer = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
    names = control_tokens(tokenizer)
    turns = [(as_plain_text(asked, names), as_plain_text(answered, names)) for asked, answered in history]
    text = _render(processor, as_plain_text(question, names), turns, image is not None)
    bos = tokenizer.bos_token
    options = {"add_special_tokens": False} if bos and text.startswith(bos) else {}  # the template wrote it already
    try:
        if isinstance(processor, ProcessorMixin):
            pictures = None if image is None else [image]
            return dict(processor(images=pictures, text=[text], return_tensors="pt", **options))
        return dict(processor([text], return_tensors="pt", **options))
    except ValueError as error:
        raise RecapError(f"The model's processor cannot take this picture and question: {error}") from error


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Texts that the tokenizer would turn into control tokens, longest first."""
    added = [text for text in tokenizer.get_added_vocab() if text.startswith(("<", "["))]
    return sorted({*tokenizer.all_special_tokens, *added}, key=len, reverse=True)


def as_plain_text(text: str, names: list[str]) -> str:
    """`text` with every name of a control token broken up behind its first character."""
    for name in names:
        text = text.replace(name, name[0] + ZERO_WIDTH_SPACE + name[1:])
    return text


def _render(processor: Any, question: str, turns: Sequence[Turn], with_image: bool) -> str:
    """The prompt as text, with one placeholder for the picture."""
    if not processor.chat_template:
        earlier = "".join(f"{asked}\n{answered}\n" for asked, answered in turns)
        return (f"{processor.image_token}\n" if with_image else "") + earlier + question
    messages: list[dict[str, Any]] = []
    for asked, answered in [*turns, (question, None)]:
        messages.append({"role": "user", "content": _content(processor, asked, with_image and not messages)})
        if answered is not None:
            messages.append({"role": "assistant", "content": _content(processor, answered, False)})
    return processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def _content(processor: object, text: str, with_image: bool) -> str | list[dict[str, str]]:
    """Processors take content in parts, tokenizers take a string."""
    if not isinstance(processor, ProcessorMixin):
        return text
    return [*([{"type": "image"}] if with_image else []), {"type": "text", "text": text}]
