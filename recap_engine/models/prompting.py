"""A question, its pictures and earlier turns as model inputs, through the model's own chat template and processor.

What a person types is text: a `<|im_end|>` or `<image>` in a question must not become the control token of that name.
Such names are broken up by an invisible zero-width space before the template sees them; text without them is untouched.
Where a tokenizer would find one all the same, say because it drops that space or folds full-width letters, the text is
refused.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jinja2 import TemplateError
from PIL import Image
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from recap_engine.errors import RecapError, first_line

ZERO_WIDTH_SPACE = "\u200b"
Turn = tuple[str, str]  # question, answer
PROCESSOR_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, TemplateError)


def build_inputs(
    processor: ProcessorMixin | PreTrainedTokenizerBase,
    question: str,
    pictures: Sequence[Image.Image] = (),
    history: Sequence[Turn] = (),
) -> dict[str, torch.Tensor]:
    """Model inputs of a batch of one. All pictures belong to the first turn. Raises RecapError if they don't fit."""
    if pictures and not isinstance(processor, ProcessorMixin):
        raise RecapError("This model reads text only; ask it without a picture.")
    tokenizer = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
    names = control_tokens(tokenizer)
    turns = [(as_plain_text(asked, names), as_plain_text(answered, names)) for asked, answered in history]
    question = as_plain_text(question, names)
    try:
        refuse_control(tokenizer, [question, *(text for turn in turns for text in turn)])
        text = _render(processor, question, turns, len(pictures))
        bos = tokenizer.bos_token
        options = {"add_special_tokens": False} if bos and text.startswith(bos) else {}  # the template wrote it already
        if isinstance(processor, ProcessorMixin):
            return dict(processor(images=list(pictures) or None, text=[text], return_tensors="pt", **options))
        inputs = processor([text], return_tensors="pt", **options)
        return {name: inputs[name] for name in ("input_ids", "attention_mask")}
    except PROCESSOR_ERRORS as error:
        raise RecapError(f"The model's processor cannot take this: {first_line(error)}") from error


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Texts that the tokenizer would turn into control tokens, longest first."""
    added = tokenizer.added_tokens_decoder.values()
    control = {str(token) for token in added if token.special or str(token).startswith(("<", "["))}
    return sorted(control.union(tokenizer.all_special_tokens), key=len, reverse=True)


def refuse_control(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> None:
    """Raise RecapError if one of the texts that a person typed would hold a control token."""
    unknown = {tokenizer.unk_token_id} - {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    control = {tokenizer.convert_tokens_to_ids(name) for name in control_tokens(tokenizer)} - unknown
    if any(control.intersection(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]):
        raise RecapError("This text holds a name that the model reads as a command: please write it differently.")


def whole_characters(text: str) -> str:
    """`text` without halves of characters (lone surrogates), which no tokenizer and no file takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_plain_text(text: str, names: list[str]) -> str:
    """`text` with every name of a control token broken up behind its first character."""
    for name in names:
        text = text.replace(name, name[0] + ZERO_WIDTH_SPACE + name[1:])
    return text


def _render(processor: Any, question: str, turns: Sequence[Turn], pictures: int) -> str:
    """The prompt as text, with one placeholder for each picture."""
    if not processor.chat_template:
        earlier = "".join(f"{asked}\n{answered}\n" for asked, answered in turns)
        return (f"{processor.image_token}\n" * pictures if pictures else "") + earlier + question
    messages: list[dict[str, Any]] = []
    for asked, answered in [*turns, (question, None)]:
        messages.append({"role": "user", "content": _content(processor, asked, 0 if messages else pictures)})
        if answered is not None:
            messages.append({"role": "assistant", "content": _content(processor, answered, 0)})
    return processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def _content(processor: object, text: str, pictures: int) -> str | list[dict[str, str]]:
    """Processors take content in parts, tokenizers take a string."""
    if not isinstance(processor, ProcessorMixin):
        return text
    return [*[{"type": "image"}] * pictures, {"type": "text", "text": text}]
