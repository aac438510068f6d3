"""Trains the embedded model from nothing: `python -m recap_engine.scenes.train --minutes 120`.

Two stages, since captions alone leave a small model at the prior of its language:
  see    the vision tower alone learns to name what every tile shows (dense labels, a head that is thrown away later);
  tell   the whole model answers packed questions, short answers before long ones; the tower keeps its dense labels,
         and half-way up the language model a word of a question that names one tile must tell what that tile shows, as
         looking things up is what a small model is slow to learn from answers alone.

Progress is checkpointed and resumes. `torchrun --nproc-per-node N -m recap_engine.scenes.train` shares a batch between
N processes, which on a few cores is quicker than N threads. `--init` starts from a trained model's weights.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

from recap_engine.models.loading import EMBEDDED

from .batches import IGNORED, Batch, Packer
from .examples import make_example
from .model import build_model, build_processor, build_tokenizer, save
from .muon import Muon
from .picture import MARK_SLOTS
from .questions import FAMILIES, TWO_TURN

TEMPLATE_WEIGHT = 0.25  # of an answer's token that tells nothing of the picture: half of those are a free choice


LOOKUP_LAYER = 3  # of the language model, after which a question's word must know what it names
LOOKUP_WEIGHT = 0.5


class MarkHead(nn.Module):
    """Reads MARK_SLOTS words off a hidden state, in the language model's own embedding space."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.slots = nn.Linear(width, MARK_SLOTS * width)

    def forward(self, states: Tensor, embedding: Tensor) -> Tensor:
        """states [N, width], embedding [V, width] -> logits [N, MARK_SLOTS, V]."""
        return self.slots(states).view(len(states), MARK_SLOTS, -1) @ embedding.T


def quick_patches(patch_embed: nn.Module) -> None:
    """The patch convolution as the matrix product it is: its backward pass is ten times quicker on a CPU."""
    weight = patch_embed.proj.weight
    patch_embed.forward = lambda pixels: F.linear(pixels, weight.view(len(weight), -1), patch_embed.proj.bias)


@dataclass
class Clock:
    """How far training is, in seconds of its own work (a pause does not count)."""

    seconds: float = 0.0
    step: int = 0
    log: list[dict] = field(default_factory=list)


class Trainer:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.device = args, torch.device(args.device)
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        torch.manual_seed(0)
        if args.init:
            processor = AutoProcessor.from_pretrained(args.init)
            model = Qwen3VLForConditionalGeneration.from_pretrained(args.init, dtype=torch.float32)
        else:
            texts = (
                t
                for f in (*FAMILIES, TWO_TURN)
                for s in range(2500)
                for turn in make_example(f, s, "train").turns
                for t in turn
            )
            processor = build_processor(build_tokenizer(texts))
            model = build_model(processor.tokenizer)
        self.processor, self.packer = processor, Packer(processor)
        self.model = model.to(self.device).train()
        quick_patches(self.model.model.visual.patch_embed)
        width = self.model.config.text_config.hidden_size
        self.heads = nn.ModuleDict({"tiles": MarkHead(width), "words": MarkHead(width)}).to(self.device)
        self.facts = self.packer.fact_tokens().to(self.device)
        self.clock = Clock()
        self.optimizers = self._optimizers()
        if args.checkpoint.exists():
            self._load()

    # ---- one step

    def mark_loss(self, head: str, states: Tensor, labels: Tensor) -> Tensor:
        """Mean over the slots that say something; empty tiles count a tenth, there are so many."""
        said = labels != IGNORED
        logits = self.heads[head](states, self.model.get_input_embeddings().weight)[said]
        wanted = labels[said]
        weights = torch.where(wanted == self.processor.tokenizer.pad_token_id, 0.1, 1.0)
        return (F.cross_entropy(logits, wanted, reduction="none") * weights).sum() / weights.sum().clamp(min=1.0)

    def see(self, batch: Batch) -> dict[str, Tensor]:
        out = self.model.model.visual(batch.pixel_values, grid_thw=batch.image_grid_thw)
        return {"marks": self.mark_loss("tiles", out.pooler_output, batch.mark_labels)}

    def tell(self, batch: Batch) -> dict[str, Tensor]:
        images = self._look(batch)
        marks = self.mark_loss("tiles", torch.cat(images.pooler_output), batch.mark_labels)
        hidden, halfway, wanted = self._answer_states(batch, images)
        named = (batch.sought != IGNORED).any(-1)
        sought = self.mark_loss("words", halfway[named], batch.sought[named])
        losses = F.cross_entropy(self.model.lm_head(hidden), wanted, reduction="none")
        weights = torch.where(self.facts[wanted], 1.0, TEMPLATE_WEIGHT)
        facts = (losses * weights).sum() / weights.sum()
        return {"marks": marks, "sought": sought, "answers": losses.mean().detach(), "facts": facts}

    def _look(self, batch: Batch) -> Any:
        """The tower's features of every picture, as the language model takes them."""
        return self.model.model.get_image_features(batch.pixel_values, batch.image_grid_thw, return_dict=True)

    def _answer_states(self, batch: Batch, images: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Last states [N, width] where answers are predicted, states half-way [B, S, width], the N tokens wanted."""
        out = self.model.model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=batch.attention_mask,
            mm_encoder_outputs={"image": images},
            use_cache=False,
            output_hidden_states=True,
        )
        answers = batch.labels != IGNORED
        return out.last_hidden_state[answers], out.hidden_states[LOOKUP_LAYER], batch.labels[answers]

    @torch.no_grad()
    def closed_accuracy(self, pictures: int = 24) -> float:
        """Share of held-out closed answers whose every token is the argmax."""
        batch = self.packer.sample_talks(("closed",), pictures, 0.0, split="validation").to(self.device)
        hidden, _, wanted = self._answer_states(batch, self._look(batch))
        right = self.model.lm_head(hidden).argmax(-1) == wanted
        number = batch.closed[batch.labels != IGNORED]
        whole = torch.ones(int(number.max()) + 1, dtype=torch.long, device=self.device)
        whole.scatter_reduce_(0, number, right.long(), "amin")
        return whole[1:].float().mean().item()

    # ---- the loop

    def run(self) -> None:
        total = self.args.minutes * 60
        seeing = 0.0 if self.args.init else self.args.see_share * total
        last_save = time.monotonic()
        while self.clock.seconds < total:
            started = time.monotonic()
            stage = "see" if self.clock.seconds < seeing else "tell"
            begin, end = (0.0, seeing) if stage == "see" else (seeing, total)
            done = (self.clock.seconds - begin) / (end - begin)
            losses = self._step(stage, done)
            self.clock.step += 1
            if self.clock.step % 25 == 0 and self.rank == 0:
                self._report(stage, done, losses)
            if time.monotonic() - last_save > 240:
                last_save = time.monotonic()
                if self.rank == 0:
                    self._save()
            self.clock.seconds = self._agree(self.clock.seconds + min(time.monotonic() - started, 20.0))
        if self.rank == 0:
            self._save()
            save(self.args.out, self.model.eval(), self.processor)

    def _step(self, stage: str, done: float) -> dict[str, float]:
        key = ("step", self.args.seed, self.clock.step, self.rank)
        if stage == "see":
            batch = self.packer.sample_pictures(key, self.args.pictures * 4 // self.world)
            losses = self.see(batch.to(self.device))
        else:
            long_share = min(1.0, 0.1 + 1.2 * done) * 0.6
            closed_share = 0.9 - 0.5 * done
            batch = self.packer.sample_talks(key, self.args.pictures // self.world, long_share, closed_share)
            losses = self.tell(batch.to(self.device))
        weights = {"marks": 1.0 if stage == "see" else 0.3 * (1 - 0.7 * done), "facts": 1.0, "sought": LOOKUP_WEIGHT}
        sum(weights[name] * losses[name] for name in weights if name in losses).backward()  # type: ignore[union-attr]
        self._share_gradients()
        nn.utils.clip_grad_norm_([p for p in self._parameters() if p.grad is not None], 1.0)
        rate = self._rate(done)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return {name: loss.item() for name, loss in losses.items()}

    def _rate(self, done: float) -> float:
        """Warm-up over the first 2 %, level until 20 %, then a straight way down to nearly nothing."""
        return min(1.0, 0.05 + done / 0.02, 0.02 + (1 - done) / 0.8)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        apart = ("embed", "slots")  # the tied output layer is named once, as the embedding
        named = [*self.model.named_parameters(), *self.heads.named_parameters()]
        matrices = [p for n, p in named if p.ndim == 2 and not any(a in n for a in apart)]
        chosen = {id(p) for p in matrices}
        others = [p for _, p in named if id(p) not in chosen]
        out: list[torch.optim.Optimizer] = [
            Muon(matrices, lr=self.args.muon_rate),
            torch.optim.AdamW(others, lr=self.args.rate, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        for optimizer in out:
            for group in optimizer.param_groups:
                group["base"] = group["lr"]
        return out

    def _parameters(self) -> Iterable[Tensor]:
        return (*self.model.parameters(), *self.heads.parameters())

    # ---- processes, files, words

    def _share_gradients(self) -> None:
        if self.world == 1:
            return
        gradients = [p.grad for p in self._parameters() if p.grad is not None]
        flat = torch.cat([g.view(-1) for g in gradients])
        dist.all_reduce(flat)
        flat /= self.world
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients])):
            gradient.copy_(part.view_as(gradient))

    def _agree(self, seconds: float) -> float:
        """The slowest process's clock, so that all change stage at the same step."""
        if self.world == 1:
            return seconds
        shared = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return shared.item()

    def _report(self, stage: str, done: float, losses: dict[str, float]) -> None:
        entry = {
            "step": self.clock.step,
            "minutes": round(self.clock.seconds / 60, 2),
            "stage": stage,
            "done": round(done, 3),
            **{k: round(v, 4) for k, v in losses.items()},
        }
        if stage == "tell" and self.clock.step % 200 == 0:
            entry["closed"] = round(self.closed_accuracy(), 4)
        self.clock.log.append(entry)
        print(json.dumps(entry), flush=True)

    def _save(self) -> None:
        self.args.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "clock": vars(self.clock),
            "optimizers": [o.state_dict() for o in self.optimizers],
        }
        part = self.args.checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.args.checkpoint)
        self.processor.save_pretrained(self.args.checkpoint.parent / "processor")

    def _load(self) -> None:
        state = torch.load(self.args.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.heads.load_state_dict(state["heads"])
        self.clock = Clock(**state["clock"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            bases = [g["base"] for g in optimizer.param_groups]
            optimizer.load_state_dict(saved)
            for group, base in zip(optimizer.param_groups, bases):
                group["base"] = base


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--minutes", type=float, default=120, help="length of the whole training, resumed parts included"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pictures", type=int, default=12, help="pictures a step (four times as many while seeing)")
    parser.add_argument("--rate", type=float, default=2e-3, help="AdamW's rate: embeddings, norms, biases")
    parser.add_argument("--muon-rate", type=float, default=4e-3, help="Muon's rate: hidden matrices")
    parser.add_argument(
        "--see-share", type=float, default=0.12, help="share of the time given to the vision tower alone"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init", type=Path, help="start from this trained model instead of random weights")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/latest.pt"))
    parser.add_argument("--out", type=Path, default=EMBEDDED)
    args = parser.parse_args()
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        torch.set_num_threads(1)
    Trainer(args).run()


if __name__ == "__main__":
    main()
