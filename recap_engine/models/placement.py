"""Where a model goes: device, precision, whether it fits there, and, if not, how it is spread or what would fit."""

import copy
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import BitsAndBytesConfig, PretrainedConfig, PreTrainedModel

from recap_engine.errors import RecapError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FOUR_BIT = "4bit"
BYTES = {  # of a weight in a linear layer, and of any other
    "float32": (4.0, 4.0),
    "bfloat16": (2.0, 2.0),
    "float16": (2.0, 2.0),
    FOUR_BIT: (0.56, 2.0),  # half a byte, and a scale that 64 of them share
}
SPARE = 1.1  # memory needed over the weights' own, for caches and activations
LEAST = 300 * 10**6  # bytes on top, whatever the size
GIGABYTE = 10**9


class Placement(NamedTuple):
    """Where a model's inputs go, and what `from_pretrained` must know to put the model there."""

    device: torch.device
    options: dict[str, Any]  # with a device_map if accelerate places it

    @property
    def placed(self) -> bool:
        """Whether `from_pretrained` has already moved the model to its device or devices."""
        return "device_map" in self.options


def place(config: PretrainedConfig, build: Any, device: str = "auto", dtype: str = "auto", name: str = "") -> Placement:
    """Where the model of `config` goes, before any of its weights are read. `build`: the auto class that loads it.

    Raises RecapError for a device that isn't there, packages that are missing, or a model that does not fit.
    """
    where = pick_device(device)
    precision = pick_dtype(dtype, where)
    kind = FOUR_BIT if dtype == FOUR_BIT else str(precision).removeprefix("torch.")
    model, attention = outline(config, build, name)
    options: dict[str, Any] = {"dtype": precision, "attn_implementation": attention}
    if kind == FOUR_BIT:
        for package in ("bitsandbytes", "accelerate"):
            if not importlib.util.find_spec(package):
                raise RecapError(f"{FOUR_BIT} needs the package {package}, which is not here: pip install {package}.")
        options["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=precision)
        options["device_map"] = {"": where}
    weights = count_weights(model)
    need, free = memory_needed(weights, kind), free_memory(where)
    if free is None or need <= free:
        return Placement(where, options)
    if device == "auto" and where.type == "cuda" and importlib.util.find_spec("accelerate"):
        places = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        if need <= sum(free_memory(each) or 0 for each in [*places, torch.device("cpu")]):
            return Placement(where, options | {"device_map": "auto"})
    smaller = [other for other in ("bfloat16", FOUR_BIT) if memory_needed(weights, other) < min(free, need)]
    raise RecapError(
        f"{name} needs about {need / GIGABYTE:.1f} GB of memory as {kind} and {free / GIGABYTE:.1f} GB are free on "
        f"{where}: choose {' or '.join([*(f'dtype {other}' for other in smaller), 'a smaller model'])}."
    )


def outline(config: PretrainedConfig, build: Any, name: str) -> tuple[PreTrainedModel, str]:
    """The model without memory for its weights, and how it attends: by SDPA if it can, which is faster, else eagerly.

    Both take the 4-D mask of a candidate tree. Raises RecapError if the configuration does not make a model.
    """
    problem: Exception | None = None
    for attention in ("sdpa", "eager"):
        try:
            with torch.device("meta"):
                return build.from_config(copy.deepcopy(config), attn_implementation=attention), attention
        except (ValueError, TypeError, AttributeError, KeyError, RuntimeError) as error:
            problem = error
    raise RecapError(f"The configuration of {name} does not make a model ({problem}).") from problem


def memory_needed(weights: tuple[int, int], kind: str) -> float:
    """Bytes that a model of so many linear and other weights takes while it answers."""
    return sum(count * size for count, size in zip(weights, BYTES[kind], strict=True)) * SPARE + LEAST


def count_weights(model: PreTrainedModel) -> tuple[int, int]:
    """Weights in linear layers, which 4 bits can hold, and all others."""
    head = model.get_output_embeddings()
    linear = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear) and layer is not head]
    count = sum(layer.weight.numel() for layer in linear)
    return count, sum(weight.numel() for weight in model.parameters()) - count


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a device; None where that cannot be told."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:  # a container may be given less than the machine has
        group = Path("/sys/fs/cgroup")
        used = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["anon"]
        return min(free, int((group / "memory.max").read_text()) - int(used))
    except (OSError, KeyError, ValueError):  # no such group, or "max"
        return free


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
    """`auto`: half precision on a GPU, float32, in which decoding is exactly lossless, elsewhere.

    `4bit` holds the weights of linear layers in 4 bits and computes in half precision.
    """
    if wish in ("auto", FOUR_BIT):
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if wish not in DTYPES:
        raise RecapError(f"dtype must be auto, {FOUR_BIT} or one of {', '.join(DTYPES)}.")
    return DTYPES[wish]
