"""The committed tokens' keys and values, in buffers allocated once per lane.

A verification pass writes the rows of the root and of all nodes behind the committed rows; committing moves the
accepted ones together and forgets the rest. Nothing is ever concatenated. Stock transformers models use the buffers
through the public cache interface: each attention layer calls `update`, and reads `get_seq_length` for masks and
positions.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from recap_engine.errors import RecapError
from recap_engine.tree import CandidateTree


class KVBuffer(Cache):
    """Keys and values of all layers, and the mask rows that hide a tree's paths from each other."""

    def __init__(self, prefilled: Cache, next_position: int, new_tokens: int, most_nodes: int) -> None:
        """Begin with the rows of `prefilled`, and leave room for `new_tokens` and for a pass over `most_nodes` nodes.

        `next_position` is the rotary position of the first new token (after a picture, M-RoPE makes it smaller than the
        number of rows). Raises RecapError if the layers differ in size.
        """
        layers: list[Any] = prefilled.layers
        keys: list[torch.Tensor] = [layer.keys for layer in layers]  # [1, heads, prompt, head width] each
        values: list[torch.Tensor] = [layer.values for layer in layers]
        if any(layer.shape != stack[0].shape for stack in (keys, values) for layer in stack):
            raise RecapError("This model's layers have keys of different sizes, which this decoder does not support.")
        self.length = keys[0].shape[2]  # committed rows; the root's own joins them when its pass is committed
        self.position_offset = next_position - self.length  # rotary position minus row
        rows = self.length + new_tokens + most_nodes + 1
        self.keys = self._stack(keys, rows)
        self.values = self._stack(values, rows)
        self.mask = keys[0].new_zeros(1, 1, 1 + most_nodes, rows)  # additive; zero over the committed rows
        super().__init__(layers=[BufferLayer(self, k, v) for k, v in zip(self.keys, self.values, strict=True)])

    def _stack(self, layers: list[torch.Tensor], rows: int) -> torch.Tensor:
        """[layers, 1, heads, rows, head width], the prompt's rows filled in."""
        _, heads, length, width = layers[0].shape
        stack = layers[0].new_empty(len(layers), 1, heads, rows, width)
        for buffer, prompt in zip(stack, layers, strict=True):
            buffer[:, :, :length] = prompt
        return stack

    def mask_for(self, tree: CandidateTree) -> torch.Tensor | None:
        """Additive mask [1, 1, 1 + nodes, committed + 1 + nodes]; None for the root alone, which sees everything."""
        if not len(tree):
            return None
        size = 1 + len(tree)
        mask = self.mask[:, :, :size, : self.length + size]
        mask[..., self.length :] = torch.from_numpy(tree.mask(hidden=-torch.inf))
        return mask

    def commit(self, accepted: list[int]) -> None:
        """Keep the rows of the root and of the `accepted` nodes of the last pass, in that order."""
        start = self.length + 1
        end = start + len(accepted)
        if accepted and accepted[-1] != len(accepted) - 1:  # not already side by side
            rows = torch.tensor([start + node for node in accepted], device=self.keys.device)
            for buffer in (self.keys, self.values):
                buffer[..., start:end, :] = buffer.index_select(3, rows)
        self.mask[..., self.length : end] = 0.0
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
