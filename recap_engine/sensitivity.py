"""How much the picture matters to each token of an answer.

The finished answer is read twice behind its prompt, once with its picture and once with a blank one of the same size.
Both passes have the same tokens at the same positions, so whatever differs between the two next-token distributions is
the picture's doing. A state where it differs much is image-sensitive (the idea: RECAP, arXiv 2611.05894, abstract).

Our choice is the blank picture: a plain grey one through the same processor. It keeps the prompt's form, which leaving
the picture out would not; but it is a picture too, and a model may see a grey wall rather than nothing.
"""

import torch
from PIL import Image

from recap_engine.errors import RecapError
from recap_engine.target import CHUNK, LEAST_LOG, Target
from recap_engine.trace import Sensitivity

GREY = (128, 128, 128)  # once normalised, not exactly 0, which some families take for padding
WITHOUT = "The same question with a plain grey picture of the same size, through the same processor."


def blank(size: tuple[int, int]) -> Image.Image:
    """The picture that stands for none; `size` is width, height."""
    return Image.new("RGB", size, GREY)


@torch.inference_mode()
def measure(
    target: Target, seen: dict[str, torch.Tensor], unseen: dict[str, torch.Tensor], tokens: list[int]
) -> Sensitivity:
    """Per token of the answer `tokens`, KL(with || without) in nats and whether the argmax changes.

    `seen` and `unseen` are the prompt's inputs with the picture and with the blank one. Raises RecapError if the two
    prompts differ. Never holds more than a few chunks of logits.
    """
    if not torch.equal(seen["input_ids"], unseen["input_ids"]):
        raise RecapError("This model makes another prompt of a blank picture, so the two cannot be compared.")
    result = Sensitivity([], [], WITHOUT)
    states = [target.read_answer(inputs, tokens) for inputs in (seen, unseen)]  # [tokens, width] each
    rows = max(1, CHUNK // target.vocabulary)
    for pair in zip(*(state.split(rows) for state in states), strict=True):
        logs = (target.logits(state).float().log_softmax(-1) for state in pair)
        ours, others = (log.clamp(min=LEAST_LOG) for log in logs)  # [rows, V]
        result.changed += (ours.argmax(-1) != others.argmax(-1)).tolist()
        result.kl += (ours.exp() * (ours - others)).sum(-1).clamp(min=0.0).tolist()
    return result
