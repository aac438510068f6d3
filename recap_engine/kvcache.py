"""The committed tokens' keys and values, in buffers allocated once per lane.

A verification pass writes the rows of the root and of all nodes behind the committed rows; committing moves the
accepted ones together and forgets the rest. Nothing is ever concatenated. Stock transformers models use the buffers
through the public cache interface: each attention layer calls `update`, and reads `get_seq_length` for masks and
positions. Layers with sliding attention keep all rows too, and a mask hides those behind their window.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from recap_engine.errors import RecapError
from recap_engine.tree import CandidateTree

EVERYTHING: Mapping[str, int | None] = {"full_attention": None}


class KVBuffer(Cache):
    """Keys and values of all layers, and the mask rows that hide a tree's paths from each other."""

    def __init__(
        self,
        prefilled: Cache,
        next_position: int,
        new_tokens: int,
        most_nodes: int,
        windows: Mapping[str, int | None] = EVERYTHING,
    ) -> None:
        """Begin with the rows of `prefilled`, and leave room for `new_tokens` and for a pass over `most_nodes` nodes.

        `next_position` is the rotary position of the first new token (after a picture, M-RoPE makes it smaller than the
        number of rows). `windows`: see `families.attention_windows`. Raises RecapError if layers hold fewer rows than
        others.
        """
        layers: list[Any] = prefilled.layers
        keys: list[torch.Tensor] = [layer.keys for layer in layers]  # [1, heads, prompt, head width] each
        values: list[torch.Tensor] = [layer.values for layer in layers]
        self.length = keys[0].shape[2]  # committed rows; the root's own joins them when its pass is committed
        if any(layer.shape[2] != self.length for layer in keys):
            raise RecapError("This model's layers remember different numbers of tokens, so it cannot verify a tree.")
        self.position_offset = next_position - self.length  # rotary position minus row
        self.windows = windows
        rows = self.length + new_tokens + most_nodes + 1
        self.stacks: list[torch.Tensor] = []  # [keys and values alike, 1, heads, rows, head width] each
        buffers = self._allocate([*keys, *values], rows)
        views = zip(buffers[: len(keys)], buffers[len(keys) :], strict=True)
        self.mask = keys[0].new_zeros(1, 1, 1 + most_nodes, rows)  # additive; zero over the committed rows
        super().__init__(layers=[BufferLayer(self, k, v) for k, v in views])

    def _allocate(self, prompts: Sequence[torch.Tensor], rows: int) -> list[torch.Tensor]:
        """[1, heads, rows, head width] for each, the prompt's rows filled in.

        Those of the same size on the same device share one stack, so that committing takes one operation.
        """
        places = [(prompt.device, prompt.shape) for prompt in prompts]
        slots = {}
        for place in dict.fromkeys(places):
            device, (_, heads, _, width) = place
            alike = prompts[places.index(place)].new_empty(places.count(place), 1, heads, rows, width)
            self.stacks.append(alike)
            slots[place] = iter(alike)
        views = [next(slots[place]) for place in places]
        for view, prompt in zip(views, prompts, strict=True):
            view[:, :, : self.length] = prompt
        return views

    def mask_for(self, tree: CandidateTree) -> torch.Tensor | dict[str, torch.Tensor] | None:
        """Additive mask [1, 1, 1 + nodes, committed + 1 + nodes]; one for each kind of layer if there are several.

        None for the root alone: then the model's own mask is right.
        """
        if not len(tree):
            return None
        size = 1 + len(tree)
        mask = self.mask[:, :, :size, : self.length + size]
        mask[..., self.length :] = torch.from_numpy(tree.mask(hidden=-torch.inf))
        masks = {kind: self._within(window, mask, tree) for kind, window in self.windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _within(self, window: int | None, mask: torch.Tensor, tree: CandidateTree) -> torch.Tensor:
        """`mask`, with what lies `window` or more tokens back in a row's own text hidden as well."""
        if window is None or self.length + max(tree.depths) < window:
            return mask
        own = self.length + torch.tensor([0, *tree.depths], device=mask.device)  # [1 + nodes], place in the text
        places = torch.cat([torch.arange(self.length, device=mask.device), own])  # [committed + 1 + nodes]
        return mask.masked_fill(places <= own[:, None] - window, -torch.inf)

    def commit(self, accepted: list[int]) -> None:
        """Keep the rows of the root and of the `accepted` nodes of the last pass, in that order."""
        start = self.length + 1
        end = start + len(accepted)
        for place, node in enumerate(accepted):
            if place != node:  # not there already; what is still to be moved lies behind it
                for stack in self.stacks:
                    stack.select(3, start + place).copy_(stack.select(3, start + node))
        self.mask[..., self.length : end].zero_()
        self.length = end


class BufferLayer(CacheLayerMixin):
    """One attention layer's view of a `KVBuffer`."""

    keys: torch.Tensor  # [1, heads, rows, head width]
    values: torch.Tensor

    def __init__(self, buffer: KVBuffer, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.buffer = buffer
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write this pass's rows behind the committed ones; returns both, [1, heads, committed + rows, head width]."""
        start, end = self.buffer.length, self.buffer.length + key_states.shape[2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.buffer.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.buffer.length + query_length, 0

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the buffer exists before the first pass."""
