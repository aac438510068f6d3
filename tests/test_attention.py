"""Attention of heads in groups: what SDPA gives, and the kernel reads the buffer's own keys."""

import random

import pytest
import torch
from test_tree import random_tree
from tiny_models import BUILDERS, TEXT, random_request, tiny_engine
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from recap_engine.engine import Engine
from recap_engine.models import attention
from recap_engine.models.attention import attend, folded
from recap_engine.stepcost import comb
from recap_engine.target import Reads, Target

CONTEXT, WIDTH, SHARED = 50, 16, 2
UNGROUPED = "gpt_neox"  # the one family here whose heads all have keys of their own


def grouped(groups: int) -> nn.Module:
    """All that SDPA asks of an attention layer."""
    module = nn.Module()
    module.num_key_value_groups = groups
    return module


def tree_mask(rows: int, window: int | None = None) -> torch.Tensor:
    """Additive [1, 1, rows, CONTEXT + rows] of a random tree, a view into a larger one as the buffer's is."""
    tree = random_tree(random.Random(rows), rows - 1)
    mask = torch.zeros(1, 1, 80, CONTEXT + 90)[:, :, :rows, : CONTEXT + rows]
    mask[..., CONTEXT:] = torch.from_numpy(tree.mask(hidden=-torch.inf))
    if window:
        own = CONTEXT + torch.tensor([0, *tree.depths])
        places = torch.cat([torch.arange(CONTEXT), own])
        mask = mask.masked_fill(places <= own[:, None] - window, -torch.inf)
    return mask


def states(groups: int, rows: int, value_width: int = WIDTH, shared: int = SHARED) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values, laid out as layers and buffers do it."""
    torch.manual_seed(groups * 100 + rows)
    query = torch.randn(1, rows, shared * groups, WIDTH).transpose(1, 2)
    keys = torch.randn(1, shared, CONTEXT + 90, WIDTH)[:, :, : CONTEXT + rows]
    values = torch.randn(1, shared, CONTEXT + 90, value_width)[:, :, : CONTEXT + rows]
    return query, keys, values


@pytest.fixture
def seen(monkeypatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Queries and keys of every call of torch's attention."""
    calls = []
    kernel = nn.functional.scaled_dot_product_attention

    def spy(query, key, value, **options):
        calls.append((query, key))
        return kernel(query, key, value, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", spy)
    return calls


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("rows", [2, 9, 65])
@pytest.mark.parametrize(("shared", "groups"), [(2, 2), (5, 3), (4, 7), (1, 8)])
def test_groups_give_what_sdpa_gives(seen, shared, groups, rows, window):
    query, key, value = states(groups, rows, shared=shared)
    given = (query, key, value, tree_mask(rows, window))
    output, weights = attend(grouped(groups), *given, scaling=0.3, sliding_window=window)
    assert weights is None
    assert output.is_contiguous()
    in_rows = folded(*given, 0.3)
    (_, key_on_cpu), (folded_query, folded_key) = seen
    assert folded_query.shape == (1, shared, groups * rows, WIDTH)
    assert folded_key is key_on_cpu is key
    expected = sdpa_attention_forward(grouped(groups), *given, scaling=0.3)[0]
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(in_rows, expected)


def test_values_may_be_of_another_width_than_keys(seen):
    given = (*states(3, 9, value_width=24), tree_mask(9))
    output, in_rows = attend(grouped(3), *given)[0], folded(*given, None)
    assert output.shape == in_rows.shape == (1, 9, 6, 24)
    assert seen[0][1] is seen[1][1] is given[1]
    expected = sdpa_attention_forward(grouped(3), *given)[0]
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(in_rows, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_copies_no_keys_either(seen, dtype):
    given = [part.to(dtype) for part in (*states(2, 9), tree_mask(9))]
    outputs = attend(grouped(2), *given, scaling=0.25)[0], folded(*given, 0.25)
    assert seen[0][1] is seen[1][1] is given[1]
    exact = sdpa_attention_forward(grouped(2), *(part.double() for part in given), scaling=0.25)[0]
    for output in outputs:
        assert output.dtype == dtype
        torch.testing.assert_close(output.double(), exact, rtol=0.02, atol=0.02)


OF_EACH_HEAD = torch.randn(1, 4, 9, CONTEXT + 9)
ELSEWHERE = {
    "no mask": (2, 9, None, {}),
    "one row": (2, 1, tree_mask(1), {}),
    "one key head for each query head": (1, 9, tree_mask(9), {}),
    "a boolean mask": (2, 9, tree_mask(9) == 0.0, {}),
    "a mask of each head": (2, 9, OF_EACH_HEAD, {}),
    "a mask shared by all rows": (2, 9, torch.zeros(1, 1, 1, CONTEXT + 9), {}),
    "a bias of each head": (2, 9, tree_mask(9), {"position_bias": OF_EACH_HEAD}),
    "dropout": (2, 9, tree_mask(9), {"dropout": 0.1}),
    "weights wanted": (2, 9, tree_mask(9), {"output_attentions": True}),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_whatever_else_is_left_to_transformers(monkeypatch, case):
    groups, rows, mask, options = ELSEWHERE[case]
    given = []

    def stock(*inputs, **options):
        given.append((inputs, options))
        return sdpa_attention_forward(*inputs, **options)

    monkeypatch.setattr(attention, "sdpa_attention_forward", stock)
    module, (query, key, value) = grouped(groups), states(groups, rows)
    output = attend(module, query, key, value, mask, scaling=0.25, **options)[0]
    assert given == [((module, query, key, value, mask), {"scaling": 0.25} | options)]
    assert output.shape == (1, rows, SHARED * groups, WIDTH)


def test_bounded_scores_are_refused_as_transformers_does():
    with pytest.raises(ValueError, match="softcap"):
        attend(grouped(2), *states(2, 9), tree_mask(9), softcap=50.0)


def read_in_place(target: Target, inputs: dict[str, torch.Tensor], seen: list) -> tuple[int, int]:
    """Query heads and rows of the kernel in a verification of eight nodes; and that it copied no key of any layer."""
    prefill = target.prefill(inputs)
    buffer = target.open(prefill, 20, 8)
    seen.clear()
    target.verify(buffer, comb(8), Reads())
    assert len(seen) == len(buffer.layers)
    for (_, key), layer in zip(seen, buffer.layers, strict=True):
        assert key.data_ptr() == layer.keys.data_ptr()
        assert key.shape[1] == layer.keys.shape[1]
    (shape,) = {query.shape[1:3] for query, _ in seen}
    return shape


@pytest.mark.parametrize("in_rows", [False, True])
@pytest.mark.parametrize("kind", BUILDERS)
def test_a_verification_reads_the_buffers_own_keys_in_every_family(seen, monkeypatch, kind, in_rows):
    if in_rows:
        monkeypatch.setattr(attention, "shared", folded)
    target = tiny_engine(kind).target
    heads, shared = TEXT["num_attention_heads"], TEXT["num_key_value_heads"]
    expected = (shared, 9 * heads // shared) if in_rows and kind != UNGROUPED else (heads, 9)
    assert read_in_place(target, random_request(kind, 0).inputs, seen) == expected


def test_a_loaded_model_copies_no_keys_and_keeps_its_name_for_how_it_attends(seen):
    target = Engine.load(device="cpu").target
    text = target.model.config.get_text_config()
    heads, shared = text.num_attention_heads, text.num_key_value_heads
    assert heads > shared, "or this says nothing"
    inputs = {"input_ids": torch.randint(10, 1000, (1, 30))}
    assert read_in_place(target, inputs, seen) == (heads, 9)
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is attend
    assert text._attn_implementation == "sdpa"


def test_a_verification_predicts_what_it_does_with_transformers_own_attention(monkeypatch):
    """Logits of all rows, in every family."""
    given = attention.shared
    for kind in BUILDERS:
        target = tiny_engine(kind).target
        prefill = target.prefill(random_request(kind, 1).inputs)
        logits = []
        for heads, function in ((given, attend), (folded, attend), (given, sdpa_attention_forward)):
            monkeypatch.setattr(attention, "shared", heads)
            monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", function)
            logits.append(target.verify(target.open(prefill, 20, 40), comb(40), Reads()).logits)
        torch.testing.assert_close(logits[0], logits[2], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(logits[1], logits[2], rtol=1e-4, atol=1e-4)
