"""Packed linear layers: the same weights, the same float32 arithmetic."""

import weakref

import pytest
import torch
from tiny_models import BUILDERS, generated, random_request, tiny_engine
from torch import nn
from transformers import AutoModelForImageTextToText

from recap_engine.engine import ALL_LANES, Engine
from recap_engine.models import packing
from recap_engine.models.loading import EMBEDDED
from recap_engine.models.packing import X86, PackedLinear, count_weights, exact_scale, pack
from recap_engine.settings import Settings
from recap_engine.target import Target

TINY = 2.0**-40  # a bfloat16 number, beside 1.0 too small for half precision at any scale
needs_x86 = pytest.mark.skipif(not X86, reason="FBGEMM is of x86 processors")


def linear(weight: torch.Tensor, bias: bool = False) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias)
    layer.weight.data = weight
    return layer


@needs_x86
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [(1,), (9,), (2, 40), (0,)])
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_a_packed_layer_multiplies_in_float32(precision, rows, bias):
    torch.manual_seed(0)
    layer = linear((torch.randn(130, 70) * torch.logspace(-5, 0, 70)).to(precision).float(), bias)
    model = nn.Sequential(layer)
    assert pack(model) == 1
    given = torch.randn(*rows, 70)
    expected = nn.functional.linear(given.double(), layer.weight.double(), layer.bias.double() if bias else None)
    result = model(given)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(model[0].weight, layer.weight), "the weights are the very same"


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        ([1.0, 0.5, -0.25], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0, 2.0**-20 * 1.5], 1.0),  # subnormal in half precision, and exact
        ([1.0, 2.0**-28], 2.0**14),
        ([70000.0 - 70000.0 % 512, 512.0], 2.0**-2),  # too large for half precision without a scale
        ([1.0, 2.0**-12 + 1.0], None),  # a digit too many
        ([1.0, TINY], None),
        ([1.0, float("inf")], None),
        ([1.0, float("nan")], None),
    ],
)
def test_scales_are_powers_of_two_that_keep_every_weight(numbers, scale):
    weight = torch.tensor([numbers])
    assert exact_scale(weight) == scale
    if scale:
        assert torch.equal((weight * scale).half().float() / scale, weight)


def test_layers_that_would_change_stay_as_they_are():
    torch.manual_seed(0)
    exact, digits, half = (linear(torch.randn(8, 6)) for _ in range(3))
    exact.weight.data = exact.weight.data.half().float()
    half.half()
    model = nn.ModuleList([exact, digits, half])
    before = [layer.weight.detach().clone() for layer in model]
    assert pack(model) == int(X86)
    assert [type(layer) for layer in model] == [PackedLinear if X86 else nn.Linear, nn.Linear, nn.Linear]
    assert all(torch.equal(layer.weight, weight) for layer, weight in zip(model, before, strict=True))
    assert count_weights(model) == sum(weight.numel() for weight in before)


@needs_x86
def test_the_weights_of_a_packed_layer_are_freed_before_the_next_is_packed(monkeypatch):
    model = nn.Sequential(*(nn.Sequential(linear(torch.ones(8, 8))) for _ in range(4)))
    weights = [weakref.ref(block[0].weight) for block in model]
    left = []

    def look(weight):
        left.append(sum(ref() is not None for ref in weights))
        return 1.0

    monkeypatch.setattr(packing, "exact_scale", look)
    assert pack(model) == 4
    assert left == [4, 3, 2, 1]
    assert not any(ref() for ref in weights)


@needs_x86
def test_the_embedded_model_is_packed_whole_and_says_what_the_stock_model_says():
    packed = Engine.load()
    stock = AutoModelForImageTextToText.from_pretrained(EMBEDDED)
    plain = Engine(Target(stock, packed.target.family), packed.processor)
    assert not [layer for layer in packed.target.model.modules() if isinstance(layer, nn.Linear)]
    for name in ("description", "chart", "reading"):
        request = packed.prepare("Describe the picture in detail.", f"assets/examples/{name}.png")
        assert packed.answer(request, "recap").tokens == generated(plain, request, 256)


@needs_x86
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", BUILDERS)
def test_packed_lanes_give_the_ids_of_generate(kind, precision):
    """`generate` runs on the packed model and on one with the same weights unpacked."""
    engine, plain = (tiny_engine(kind, seed=3) for _ in range(2))
    for model in (engine.target.model, plain.target.model):
        for weight in model.parameters():
            weight.data = weight.data.to(precision).float()
    assert pack(engine.target.model) > 8
    engine.target = Target(engine.target.model, engine.target.family)
    for seed in range(2):
        request = random_request(kind, seed)
        expected = generated(engine, request, 16)
        assert generated(plain, request, 16) == expected
        for lane in ALL_LANES:
            assert engine.answer(request, lane, Settings(max_new_tokens=16, budget=16)).tokens == expected
