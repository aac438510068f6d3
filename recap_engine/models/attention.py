"""Attention of a candidate tree's rows, without copies of the keys and values that several query heads share.

In most models a key/value head serves a group of query heads. Given a mask, transformers' SDPA copies every key and
value of the context once for each head of the group, in every layer of every pass, because most kernels want a key
head for each query head. Torch's kernel for CPUs reads shared heads in place (`shared`). For the others the heads of a
group become further rows of one head, as all heads share a tree's mask (`folded`): then only the queries and the mask
are copied, a few rows. The sums are the same.

`attend` is registered as "sdpa" and not under a name of its own: a dozen of transformers' models compare the name in
their configuration with "sdpa", and under another one Falcon would add boolean masks to its scores and DeepSeek-V3.2
forget which keys it has chosen. Nothing else changes by that: transformers makes boolean masks, and a tree's is not.
"""

from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward


def register_attend() -> None:
    """Let the models of this process that attend by SDPA use `attend`; again is the same as once."""
    AttentionInterface.register("sdpa", attend)


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What `sdpa_attention_forward` returns, [B, R, H, v], for grouped heads under a tree's mask without copied keys.

    Shapes: `query` [B, H, R, d], `key` [B, KV, L, d], `value` [B, KV, L, v], a tree's mask [1, 1, R, L].
    """
    if attention_mask is None or not _groups_share(query, key, attention_mask, options):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    heads = shared if query.device.type == "cpu" else folded
    return heads(query, key, value, attention_mask, options.get("scaling")).contiguous(), None


def shared(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Let the kernel know that groups share heads; a tenth to a third quicker than `folded` for nine rows."""
    attend_to = nn.functional.scaled_dot_product_attention
    return attend_to(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True).transpose(1, 2)


def folded(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Head number kv * G + g reads key/value head kv, so queries in their own order are also [B, KV, G * R, d]."""
    batch, heads, rows, width = query.shape
    alike = key.shape[1]
    groups = heads // alike
    output = nn.functional.scaled_dot_product_attention(
        query.reshape(batch, alike, groups * rows, width),
        key,
        value,
        attn_mask=torch.cat([mask] * groups, dim=2),  # of all ways to repeat few rows the quickest
        scale=scale,
    )
    apart = output.view(batch, alike, groups, rows, -1)
    return apart.permute(0, 3, 1, 2, 4).reshape(batch, rows, heads, -1)


def _groups_share(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor, options: dict[str, Any]) -> bool:
    """Whether several rows of grouped heads share an additive mask, and nothing is asked that is done head by head."""
    return (
        mask.is_floating_point()
        and mask.shape == (1, 1, query.shape[2], key.shape[2])
        and query.shape[2] > 1
        and query.shape[1] > key.shape[1]
        and not options.get("dropout")
        and not options.get("output_attentions")
        and options.get("softcap") is None
        and options.get("position_bias") is None
    )
