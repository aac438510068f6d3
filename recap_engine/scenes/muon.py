"""Muon for hidden matrices (K. Jordan et al., 2024, "Muon: an optimizer for hidden layers"), in float32.

torch.optim.Muon orthogonalises in bfloat16, which processors without bfloat16 units emulate slowly; this one does not.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def orthogonalise(gradient: Tensor, steps: int = 5) -> Tensor:
    """Newton-Schulz iteration towards the nearest semi-orthogonal matrix. gradient: [rows, columns]."""
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, scaled to AdamW's usual update size so that learning rates carry over.

    With several processes each orthogonalises its share of the matrices and all get the sum.
    """

    def __init__(self, parameters: list[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01) -> None:
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            updates = [self._update(p, group["momentum"], mine=i % world == rank) for i, p in enumerate(parameters)]
            if world > 1:
                flat = torch.cat([u.reshape(-1) for u in updates])
                dist.all_reduce(flat)
                updates = [part.view_as(p) for part, p in zip(flat.split([p.numel() for p in parameters]), parameters)]
            for p, update in zip(parameters, updates):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)

    def _update(self, p: Tensor, momentum: float, mine: bool) -> Tensor:
        average = self.state[p].setdefault("momentum", torch.zeros_like(p))
        average.lerp_(p.grad, 1 - momentum)
        return orthogonalise(p.grad.lerp(average, momentum)) if mine else torch.zeros_like(p)
