"""Models of the Hub that this engine is known to fit, for a list to choose from. Any other of their families loads too.

Sizes are counted from the architecture each model was published with, at the precision its files hold; licences are
those that the model cards name at huggingface.co/NAME: read the card before you rely on one.
"""

from dataclasses import dataclass

from recap_engine.models import hub
from recap_engine.models.placement import GIGABYTE, LEAST, SPARE


@dataclass(frozen=True)
class Known:
    """A model of the Hub. Sizes are in GB, 10^9 bytes."""

    name: str
    family: str
    weights: float  # 10^9 of them
    licence: str
    gated: bool = False  # its licence is accepted on the Hub, with an account
    bytes_each: int = 2  # of a weight in its files

    @property
    def size(self) -> float:
        """What is downloaded, in GB."""
        return self.weights * self.bytes_each

    def memory(self, bytes_each: float = 2) -> float:
        """About what is needed to answer, in GB; half precision takes 2 bytes a weight, float32 4, 4 bits some 0.6."""
        return self.weights * bytes_each * SPARE + LEAST / GIGABYTE

    @property
    def on_disk(self) -> bool:
        """Whether it is here already, complete."""
        return hub.on_disk(self.name)


CATALOGUE = (
    Known("HuggingFaceTB/SmolVLM-256M-Instruct", "SmolVLM", 0.256, "apache-2.0"),
    Known("HuggingFaceTB/SmolVLM-500M-Instruct", "SmolVLM", 0.507, "apache-2.0"),
    Known("Qwen/Qwen3-VL-2B-Instruct", "Qwen3-VL", 2.13, "apache-2.0"),
    Known("Qwen/Qwen2-VL-2B-Instruct", "Qwen2-VL", 2.21, "apache-2.0"),
    Known("HuggingFaceTB/SmolVLM2-2.2B-Instruct", "SmolVLM", 2.25, "apache-2.0", bytes_each=4),
    Known("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen2.5-VL", 3.75, "qwen-research: not for commercial use"),
    Known("google/gemma-3-4b-it", "Gemma-3", 4.30, "gemma", gated=True),
    Known("Qwen/Qwen3-VL-4B-Instruct", "Qwen3-VL", 4.44, "apache-2.0"),
    Known("llava-hf/llava-1.5-7b-hf", "LLaVA-1.5", 7.06, "llama2"),
    Known("llava-hf/llava-v1.6-vicuna-7b-hf", "LLaVA-NeXT", 7.06, "llama2"),
    Known("llava-hf/llava-v1.6-mistral-7b-hf", "LLaVA-NeXT", 7.57, "apache-2.0"),
    Known("Qwen/Qwen2-VL-7B-Instruct", "Qwen2-VL", 8.29, "apache-2.0"),
    Known("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL", 8.29, "apache-2.0"),
    Known("Qwen/Qwen3-VL-8B-Instruct", "Qwen3-VL", 8.77, "apache-2.0"),
    Known("HuggingFaceTB/SmolLM2-135M-Instruct", "text-only", 0.135, "apache-2.0"),
    Known("Qwen/Qwen2.5-0.5B-Instruct", "text-only", 0.494, "apache-2.0"),
)
