"""The target: a transformers model behind three calls, prefill, verify(tree) and commit(path).

`prefill` runs the prompt and its picture once per request. `verify` runs the root and a candidate tree over the
committed rows of a `KVBuffer` and reads the logits. `KVBuffer.commit` keeps the accepted rows. Batch of one, greedy.
"""

import math
import time
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel

from recap_engine.errors import RecapError
from recap_engine.kvcache import KVBuffer
from recap_engine.memory import Record
from recap_engine.models.attention import register_attend
from recap_engine.models.families import Family, attention_windows, prompt_positions
from recap_engine.stepcost import StepCost
from recap_engine.trace import Written
from recap_engine.tree import CandidateTree

MOST_SEEDS = 64  # text positions of a prompt, the last ones, whose predictions are kept: each costs a row of the head
CHUNK = 2**24  # most logits in float32 at once while reading a prompt: 64 MiB
NO_LIMIT = 2**31
LARGE, BLOCK = 2**13, 128  # a vocabulary from which its best are looked for in blocks; has more blocks than k may be
LEAST_LOG = -1e4  # a log-probability of -inf counts as this: its probability is 0 either way
NOT_FOR_FORWARD = ("attention_mask", "mm_token_type_ids")  # a batch of one has no padding; positions are explicit


@dataclass(frozen=True)
class Reads:
    """What a decoder needs of the logits. The default is the argmax alone."""

    top_k: int = 0
    probabilities: bool = False
    entropy: bool = False


@dataclass(slots=True)
class Reading:
    """What was read of one pass, one entry per row. Lists stay empty unless `Reads` or the trace asked for them."""

    argmax: list[int]  # [rows]
    tokens: list[list[int]] = field(default_factory=list)  # [rows][k], best first
    probabilities: list[list[float]] = field(default_factory=list)  # [rows][k]
    entropy: list[float] = field(default_factory=list)  # [rows], over ln|V|
    node_probabilities: list[float] = field(default_factory=list)  # [nodes], at the parent's row; for the trace
    node_ranks: list[int] = field(default_factory=list)  # [nodes], 0 is the argmax; for the trace
    records: dict[int, Record] = field(default_factory=dict)  # by row, what decoders remember of it
    logits: torch.Tensor | None = None  # [rows, V] of a verification, until the step is over

    def record(self, row: int, written: Written) -> Record:
        """The row as a record, which `records` keeps for the trace."""
        record = self.records[row] = Record(
            self.tokens[row],
            self.probabilities[row] if self.probabilities else [],
            self.entropy[row] if self.entropy else 0.0,
            written,
        )
        return record

    def complete(self, logs: torch.Tensor) -> None:
        """Probabilities and entropy of the rows that lack them, from their log-probabilities [rows, V]."""
        missing = range(len(self.entropy), len(self.entropy) + len(logs))
        tokens = torch.tensor([self.tokens[row] for row in missing], device=logs.device)
        self.probabilities += logs.gather(1, tokens).exp().tolist()
        self.entropy += _entropy(logs)
        for row in missing:
            self.records[row].probabilities, self.records[row].entropy = self.probabilities[row], self.entropy[row]

    def margin(self, row: int) -> float:
        """Logit gap between the best and the second token of a row; needs the probabilities of at least two."""
        best, second = self.probabilities[row][:2]
        return math.log(best / max(second, 1e-38))


@dataclass
class Prefill:
    """A prompt's pass, shared by all lanes of its request."""

    tokens: list[int]  # the prompt
    text_positions: list[int]  # those that hold text, not image placeholders
    hidden: torch.Tensor  # [seeds, width]: last hidden states at the last MOST_SEEDS of them, for `read_prompt`
    cache: DynamicCache
    next_position: int  # rotary position of the first new token; M-RoPE: on all three axes
    first_token: int
    seconds: float


class Target:
    """A loaded model of a known family."""

    def __init__(self, model: PreTrainedModel, family: Family) -> None:
        register_attend()
        self.model = model.eval()
        self.family = family
        self.device = entry_device(model)
        self.head = model.get_output_embeddings()
        text = model.config.get_text_config()
        self.vocabulary: int = self.head.out_features
        self.max_position: int = getattr(text, "max_position_embeddings", NO_LIMIT)
        self.windows = attention_windows(text)
        self.step_cost: StepCost | None = None  # measured when it is first asked for; see `Engine.step_cost`
        scales = (getattr(text, name, None) for name in ("logit_scale", "logits_scaling"))  # Cohere's and Granite's
        times, over = (scale if isinstance(scale, float) else 1.0 for scale in scales)
        self.logit_scale: float = times / over
        self.logit_bound: float | None = getattr(text, "final_logit_softcapping", None)
        self.threads: int | None = None  # that passes on a CPU run with, see `threads.fit`; None: as torch is set

    @property
    def stop_tokens(self) -> frozenset[int]:
        """The end-of-sequence ids that `model.generate` stops at."""
        eos = self.model.generation_config.eos_token_id
        return frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])

    @torch.inference_mode()
    def prefill(self, inputs: dict[str, torch.Tensor]) -> Prefill:
        """Run the prompt. `inputs`: input_ids [1, P] and what the family's processor adds for the picture.

        Only the last position's logits are computed; the hidden states of the last text positions are kept for
        `read_prompt`.
        """
        self._set_threads()
        start = time.perf_counter()
        cache = DynamicCache()
        hidden, positions = self._read(inputs, cache)
        first_token = int(self.logits(hidden[-1:]).argmax(-1))
        tokens = inputs["input_ids"][0].tolist()
        image_token = self.family.image_token(self.model.config)
        text_positions = [i for i, token in enumerate(tokens) if token != image_token]
        return Prefill(
            tokens=tokens,
            text_positions=text_positions,
            hidden=hidden[text_positions[-MOST_SEEDS:]],
            cache=cache,
            next_position=int(positions.max()) + 1,
            first_token=first_token,
            seconds=time.perf_counter() - start,
        )

    def _read(self, inputs: dict[str, torch.Tensor], cache: DynamicCache) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states [P, D] and rotary positions, [3, 1, P] or [1, P], of a prompt; its keys join `cache`."""
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        positions = prompt_positions(self.model, self.family, inputs)
        forward = {name: value for name, value in inputs.items() if name not in NOT_FOR_FORWARD}
        hidden = self.model.base_model(**forward, position_ids=positions, cache=cache).last_hidden_state[0]
        return hidden, positions

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, V] of last hidden states [rows, D], scaled and bounded as the model's own forward does it."""
        logits = self.head(hidden)
        if self.logit_scale != 1.0:
            logits = logits * self.logit_scale
        return torch.tanh(logits / self.logit_bound) * self.logit_bound if self.logit_bound else logits

    @torch.inference_mode()
    def read_answer(self, inputs: dict[str, torch.Tensor], tokens: list[int]) -> torch.Tensor:
        """Hidden states [tokens, D] from which the target says each of an answer's tokens, the prompt before them.

        The answer is a pass of its own, as in decoding: whatever it holds is text, placeholders of pictures too.
        """
        cache = DynamicCache()
        hidden, positions = self._read(inputs, cache)
        states = [hidden[-1:]]
        if len(tokens) > 1:
            next_position = int(positions.max()) + 1
            rows = torch.tensor(
                [tokens[:-1], range(next_position, next_position + len(tokens) - 1)], device=self.device
            )
            positions = rows[1:].expand(3, 1, -1) if self.family.mrope else rows[1:]  # the same on all three axes
            states.append(
                self.model.base_model(input_ids=rows[:1], position_ids=positions, cache=cache).last_hidden_state[0]
            )
        return torch.cat(states)

    @torch.inference_mode()
    def read_prompt(self, prefill: Prefill, reads: Reads) -> Reading:
        """The prompt's own predictions, a row for each of `prefill.hidden`, in chunks that never hold CHUNK logits."""
        reading = Reading([])
        for rows in prefill.hidden.split(max(1, CHUNK // self.vocabulary)):
            part = _read(self.logits(rows), reads)
            for column in ("argmax", "tokens", "probabilities", "entropy"):
                getattr(reading, column).extend(getattr(part, column))
        return reading

    @torch.inference_mode()
    def complete_prompt(self, prefill: Prefill, reading: Reading) -> None:
        """What a trace tells of the prompt's records beyond what their decoder asked for."""
        if not reading.entropy:
            for rows in prefill.hidden.split(max(1, CHUNK // self.vocabulary)):
                reading.complete(_logs(self.logits(rows)))

    def open(self, prefill: Prefill, new_tokens: int, most_nodes: int) -> KVBuffer:
        """A lane's own buffer, with room for `new_tokens` and for a pass over `most_nodes` nodes.

        Raises RecapError if the answer could outgrow the model's positions.
        """
        if prefill.next_position + new_tokens > self.max_position:
            raise RecapError(
                f"The prompt of {len(prefill.tokens)} tokens and an answer of {new_tokens} do not fit "
                f"this model's {self.max_position} positions."
            )
        return KVBuffer(prefill.cache, prefill.next_position, new_tokens, most_nodes, self.windows)

    @torch.inference_mode()
    def verify(self, buffer: KVBuffer, tree: CandidateTree, reads: Reads) -> Reading:
        """One pass over the root and the tree's nodes; the buffer's committed rows stay as they are."""
        self._set_threads()
        base = buffer.length + buffer.position_offset
        tokens = [tree.context[-1], *tree.tokens]
        depths = [base, *[base + depth for depth in tree.depths]]
        rows = torch.tensor([tokens, depths], device=self.device)  # [2, 1 + nodes]
        positions = rows[1:].expand(3, 1, -1) if self.family.mrope else rows[1:]  # the same on all three axes
        logits = self.model(
            input_ids=rows[:1], position_ids=positions, attention_mask=buffer.mask_for(tree), cache=buffer
        ).logits[0]  # [1 + nodes, V]
        reading = _read(logits, reads)
        reading.logits = logits
        return reading

    @torch.inference_mode()
    def complete(self, reading: Reading, tree: CandidateTree) -> None:
        """What a trace tells of a verification beyond what its decoder asked for."""
        assert reading.logits is not None
        logs = _logs(reading.logits)
        if not reading.entropy:
            reading.complete(logs)
        if len(tree):
            parents, tokens = torch.tensor([tree.parents, tree.tokens], device=logs.device)
            at_parents = logs.index_select(0, parents + 1)  # [nodes, V]
            own = at_parents.gather(1, tokens[:, None])  # [nodes, 1]
            better = torch.gt(at_parents, own, out=torch.empty_like(at_parents))  # as floats: much faster to sum
            reading.node_probabilities = own[:, 0].exp().tolist()
            reading.node_ranks = [int(rank) for rank in better.sum(-1).tolist()]

    def commit(self, buffer: KVBuffer, accepted: list[int]) -> None:
        """Keep the rows of the root and of the accepted nodes of the last pass."""
        buffer.commit(accepted)

    def _set_threads(self) -> None:
        """OpenMP keeps the number per calling thread, and a server's requests come from many."""
        if self.threads:
            torch.set_num_threads(self.threads)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next is true."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def entry_device(model: PreTrainedModel) -> torch.device:
    """Where a model takes its inputs; accelerate moves them on if its layers are spread over several devices."""
    hook = getattr(model, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    return model.device if device is None else torch.device(device)


def _read(logits: torch.Tensor, reads: Reads) -> Reading:
    """Argmax, top-k, probabilities and entropy of [rows, V] logits, as far as they are asked for.

    As few passes over all V as there can be: with a large vocabulary each takes as long as some of the model's layers.
    """
    if not reads.top_k:
        return Reading(logits.argmax(-1).tolist())
    scores = logits.float()
    best, where = _top(scores, reads.top_k)
    values, tokens = best.tolist(), where.tolist()
    tied = reads.top_k == 1 or any(best == second for best, second, *_ in values)  # top-k may begin with either
    reading = Reading(scores.argmax(-1).tolist() if tied else [row[0] for row in tokens], tokens)
    if reads.probabilities:
        chances = scores.softmax(-1)
        reading.probabilities = chances.gather(-1, where).tolist()
        if reads.entropy:  # ln of the sum of exp(scores), less the mean score; a score of -inf counts as nothing
            log_sums = [best - math.log(chance) for (best, *_), (chance, *_) in zip(values, reading.probabilities)]
            means = chances.mul_(scores).nansum(-1).tolist()
            most = math.log(logits.shape[-1])
            reading.entropy = [min(max(0.0, (s - m) / most), 1.0) for s, m in zip(log_sums, means)]
    return reading


def _top(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of every row of [rows, V], best first, and where they are: [rows, k] each.

    Of a large vocabulary they lie in the k blocks with the largest maxima, and maxima are quick to find: a sixth to an
    eighth of the time (9 rows of 49,152 and of 151,936 on two cores).
    """
    size = scores.shape[1]
    if size < LARGE:
        top = scores.topk(k)
        return top.values, top.indices
    whole = size - size % BLOCK
    blocks = scores[:, :whole].unflatten(1, (-1, BLOCK)).amax(-1).topk(k).indices  # [rows, k]
    within = torch.arange(BLOCK, device=scores.device)
    rest = torch.arange(whole, size, device=scores.device).expand(len(scores), -1)  # behind the last whole block
    places = torch.cat([(blocks[..., None] * BLOCK + within).flatten(1), rest], dim=1)
    top = scores.gather(1, places).topk(k)
    return top.values, places.gather(1, top.indices)


def _logs(logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities in float32, [rows, V]."""
    return logits.float().log_softmax(-1)


def _entropy(logs: torch.Tensor) -> list[float]:
    """[rows], over ln|V|."""
    entropy = (logs.exp() * logs.clamp(min=LEAST_LOG)).sum(-1) / -math.log(logs.shape[-1])
    return entropy.clamp(0.0, 1.0).tolist()
