"""Linear layers on a CPU, packed: weights kept as half-precision numbers, arithmetic in float32.

Most checkpoints are published in half precision, and a CPU computes with their numbers widened to float32. Nothing is
lost if they stay in 16 bits in memory and are widened as they are multiplied: products and sums are float32 as before.
FBGEMM, which comes with torch on x86, does that with the weights laid out once in the order in which they are read. A
plain float32 product of two or more rows lays them out anew in every pass, most of its time while rows are few; and few
rows are what decoding multiplies: one alone, or those of a candidate tree. So packing helps AR, and trees more.

A layer whose weights are not exactly such numbers is never packed, so no weight is ever changed.
"""

import ctypes
import math
from contextlib import suppress

import torch
from torch import nn

X86 = "fbgemm" in torch.backends.quantized.supported_engines
MOST = 2.0**15  # scaled weights stay below it, far from half precision's largest number


class PackedLinear(nn.Module):
    """A linear layer of half-precision weights that multiplies in float32: [..., in] -> [..., out]."""

    def __init__(self, linear: nn.Linear, scale: float) -> None:
        """`scale`: a power of two that makes every weight an exact half-precision number, see `exact_scale`."""
        super().__init__()
        self.in_features, self.out_features, self.unscale = linear.in_features, linear.out_features, 1.0 / scale
        bias = None if linear.bias is None else linear.bias.detach() * scale
        self.packed = torch.ops.quantized.linear_prepack_fp16((linear.weight.detach() * scale).contiguous(), bias)
        self.multiply = torch.ops.quantized.linear_dynamic_fp16.default

    @property
    def weight(self) -> torch.Tensor:
        """[out, in] in float32, unpacked anew every time."""
        return torch.ops.quantized.linear_unpack_fp16(self.packed)[0] * self.unscale

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        product = self.multiply(rows, self.packed)
        return product if self.unscale == 1.0 else product.mul_(self.unscale)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def pack(model: nn.Module) -> int:
    """Replace the linear layers of a float32 model on a CPU that can be packed; returns how many were.

    The float32 weights of a replaced layer are freed, except where another layer shares them, as embeddings do. Layers
    that can't be packed get the rows of their transpose side by side: few rows times that take a third less time here
    (MKL, 1 to 32 rows of 256 x 704).
    """
    packed = 0
    for module in [module for module in model.modules() if not isinstance(module, nn.Linear)]:
        if own := _pack_children(module):
            packed += own
            give_back()
    return packed


def _pack_children(module: nn.Module) -> int:
    """Its own layers, not those of its parts. When this returns, nothing holds the weights of the replaced ones."""
    packed = 0
    for name, layer in list(module.named_children()):
        if type(layer) is not nn.Linear or layer.weight.device.type != "cpu":
            continue
        if X86 and (scale := exact_scale(layer.weight)):
            setattr(module, name, PackedLinear(layer, scale))
            packed += 1
        else:
            layer.weight.data = layer.weight.data.T.contiguous().T
    return packed


def give_back() -> None:
    """Return freed memory to the system. The C library keeps it for the threads that loaded the weights."""
    with suppress(AttributeError, OSError, TypeError):  # glibc alone has the function
        ctypes.CDLL(None).malloc_trim(0)


def count_weights(model: nn.Module) -> int:
    """Numbers in a model's parameters and packed layers."""
    packed = (layer for layer in model.modules() if isinstance(layer, PackedLinear))
    return sum(layer.in_features * layer.out_features for layer in packed) + sum(p.numel() for p in model.parameters())


def exact_scale(weight: torch.Tensor) -> float | None:
    """The power of two that makes all of these float32 numbers exact in half precision, 1 if it can be; None if none.

    A bfloat16 number has fewer digits than a half-precision one but a wider range: brought near the upper end of half
    precision's, what a layer holds of them fits.
    """
    if weight.dtype != torch.float32:
        return None
    largest = float(weight.detach().abs().max())
    if not math.isfinite(largest):
        return None
    near_top = MOST * 0.5 ** math.frexp(largest)[1]
    for scale in (1.0, near_top):
        scaled = weight.detach() * scale
        if torch.equal(scaled.half().float(), scaled):
            return scale
    return None
