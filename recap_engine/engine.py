"""The engine: a loaded model, the memories that outlive a request, and the lanes that answer one."""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

import torch
import transformers
from PIL import Image
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from recap_engine import memory_file, stepcost, threads
from recap_engine.blending import blend
from recap_engine.decode import Progress, decode
from recap_engine.decoders import Autoregressive, Decoder, Recap, RecapPlus, TokenRecycling
from recap_engine.errors import RecapError, is_memory_full
from recap_engine.images import MOST_PICTURES, open_fitted
from recap_engine.memory import Changes, TokenMemory
from recap_engine.memory_file import Binding
from recap_engine.models.check import check_tree
from recap_engine.models.hub import Downloaded
from recap_engine.models.loading import load
from recap_engine.models.prompting import Turn, build_inputs, whole_characters
from recap_engine.request import Request
from recap_engine.sensitivity import blank, measure
from recap_engine.settings import Settings
from recap_engine.stepcost import StepCost
from recap_engine.target import Target
from recap_engine.trace import BLENDING, LaneTrace, RequestTrace, Sensitivity, Setting

LANES = ("ar", "tr", "recap")
ALL_LANES = (*LANES, "recap+")
MEMORY_FULL = "The device's memory is full: try a smaller picture, a shorter answer or a smaller budget."
Picture = Image.Image | str | Path | bytes


class Engine:
    """One loaded model, and one persistent memory per method that has one."""

    def __init__(
        self,
        target: Target,
        processor: ProcessorMixin | PreTrainedTokenizerBase | None = None,
        model_name: str = "model",
        revision: str = "",
    ) -> None:
        """`processor` turns questions into inputs and ids into text; without one, requests are made from inputs.

        `revision` tells one state of the model's weights from another.
        """
        self.target = target
        self.processor = processor
        self.model_name = model_name
        self.revision = revision
        self.memories: dict[str, TokenMemory] = {name: TokenMemory() for name in ALL_LANES[1:]}

    @classmethod
    def load(
        cls,
        name_or_path: str | Path | None = None,
        device: str = "auto",
        dtype: str = "auto",
        progress: Downloaded | None = None,
    ) -> "Engine":
        """Load a model of the hub or a folder, or the embedded one: see `models.loading.load`. Raises RecapError."""
        loaded = load(name_or_path, device, dtype, progress)
        target = Target(loaded.model, loaded.family)
        if not loaded.family.vision:
            check_tree(target)
        target.threads = threads.fit(target)
        return cls(target, loaded.processor, loaded.name, loaded.revision)

    @property
    def device(self) -> torch.device:
        return self.target.device

    @property
    def dtype(self) -> torch.dtype:
        return self.target.model.dtype

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        return self.processor.tokenizer if isinstance(self.processor, ProcessorMixin) else self.processor

    @property
    def step_cost(self) -> StepCost:
        """The measured cost of passes over trees; takes some seconds the first time."""
        if self.target.step_cost is None:
            self.target.step_cost = stepcost.measure(self.target)
        return self.target.step_cost

    @step_cost.setter
    def step_cost(self, cost: StepCost) -> None:
        self.target.step_cost = cost

    def cost_for(self, request: Request, settings: Settings) -> StepCost:
        """What steps of this request cost: at the context that it has when half of its longest answer is said."""
        if settings.budget != "auto":
            return StepCost.free(settings.budget)
        return self.step_cost.at(request.prompt_tokens + settings.max_new_tokens // 2)

    @property
    def measured_cost(self) -> StepCost | None:
        """The step cost, if it was measured already."""
        return self.target.step_cost

    @property
    def vocabulary(self) -> int:
        """Tokens there are, and so the most keys of order 1."""
        return self.target.vocabulary

    def apart(self, memories: dict[str, TokenMemory] | None = None) -> "Engine":
        """The same target and step cost with memories of its own, by default empty ones.

        For a comparison that must not share them, and for a visitor who must not.
        """
        other = copy(self)
        other.memories = {name: TokenMemory() for name in self.memories} if memories is None else memories
        return other

    @property
    def binding(self) -> Binding:
        """What a saved memory must have been made with to be of use here."""
        return Binding(self.model_name, self.revision, self._tokenizer_sha)

    def save_memories(self, path: str | Path) -> None:
        """Write the persistent memories into one file, in one go. Raises RecapError; the old file then stays."""
        memory_file.save(path, self.memories, self.binding)

    def load_memories(self, path: str | Path) -> None:
        """Replace the persistent memories by a file's. Raises RecapError for a foreign or damaged one; they then stay.

        To be called between requests.
        """
        self.memories.update(memory_file.load(path, self.binding, self.target.vocabulary, self.memories))

    def merge_memories(self, changes: Mapping[str, Changes]) -> None:
        """Take over, lane by lane, what requests changed in copies of the persistent memories, losing nothing."""
        for lane, changed in changes.items():
            self.memories[lane].merge(changed, blend if lane in BLENDING else None)

    def clear_memories(self) -> None:
        """Forget all earlier requests."""
        for memory in self.memories.values():
            memory.clear()

    def prepare(
        self,
        question: str,
        image: Picture | Sequence[Picture] | None = None,
        history: Sequence[Turn] = (),
    ) -> Request:
        """A request in the model's own chat format. `image` may be several; they belong to the first turn of `history`.

        Raises RecapError for an empty question, an unreadable picture, or a prompt longer than the model's positions.
        """
        if self.processor is None:
            raise RecapError("This engine was made without a tokenizer; build a Request from model inputs.")
        question = whole_characters(question)
        history = [(whole_characters(asked), whole_characters(answered)) for asked, answered in history]
        if not question.strip():
            raise RecapError("Please ask a question.")
        images = as_list(image)
        if len(images) > MOST_PICTURES:
            raise RecapError(f"A question may come with {MOST_PICTURES} pictures; these are {len(images)}.")
        opened = [open_fitted(one) for one in images]
        pictures = [picture for picture, _ in opened]
        request = Request(
            build_inputs(self.processor, question, pictures, history),
            question,
            history,
            pictures,
            given_sizes=[size for _, size in opened],
        )
        if pictures:
            request.image_sha = hashlib.sha256(b"".join(picture.tobytes() for picture in pictures)).hexdigest()
        if request.prompt_tokens >= self.target.max_position:
            raise RecapError(
                f"This prompt has {request.prompt_tokens} tokens; the model can take {self.target.max_position}."
            )
        return request

    def run(self, request: Request, lane: str, settings: Settings | None = None) -> Iterator[Progress]:
        """Answer `request` with one lane, step by step. Closing the generator cancels it at the next step.

        Raises RecapError for an unknown lane, an answer that cannot fit, and when the device's memory runs out.
        """
        settings = settings or Settings()
        try:
            if request.prefill is None:
                request.prefill = self.target.prefill(request.inputs)
            decoder = self._decoder(request, lane, settings)
            yield from decode(self.target, decoder, request.prefill, settings, self._text)
        except (RuntimeError, MemoryError) as error:
            if not is_memory_full(error):
                raise
            raise RecapError(MEMORY_FULL) from error

    def answer(self, request: Request, lane: str, settings: Settings | None = None) -> LaneTrace:
        """Run a lane to its end."""
        *_, last = self.run(request, lane, settings)
        return last.trace

    def sensitivity(self, request: Request, tokens: list[int]) -> Sensitivity:
        """How much the picture matters to each token of a finished answer; two passes, whatever its length.

        Raises RecapError if the request has no picture.
        """
        if not request.pictures or self.processor is None:
            raise RecapError("This question came without a picture, so there is nothing to take away.")
        blanks = [blank(picture.size) for picture in request.pictures]
        grey = build_inputs(self.processor, request.question, blanks, request.history)
        try:
            return measure(self.target, request.inputs, grey, tokens)
        except (RuntimeError, MemoryError) as error:
            if not is_memory_full(error):
                raise
            raise RecapError(MEMORY_FULL) from error

    def trace(self, request: Request, lanes: Iterable[LaneTrace], settings: Settings) -> RequestTrace:
        """Bundle the lanes' traces with what is needed to read them elsewhere."""
        by_name = {lane.name: lane for lane in lanes}
        prompt_end = request.inputs["input_ids"][0, -2:].tolist()
        tokens = set(prompt_end)
        for lane in by_name.values():
            tokens.update(lane.tokens, *(step.tokens for step in lane.steps), *lane.records.tokens)
        return RequestTrace(
            model=self.model_name,
            tokenizer_sha=self._tokenizer_sha,
            question=request.question,
            history=list(request.history),
            image_sha=request.image_sha,
            image_size=request.image_size,
            prompt_tokens=request.prompt_tokens,
            prompt_end=prompt_end,
            settings=asdict(settings),
            machine=self.machine,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            lanes=by_name,
            token_text={token: self._token_text(token) for token in sorted(tokens)},
        )

    @property
    def machine(self) -> dict[str, Setting]:
        """Where the times come from."""
        on_gpu = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if on_gpu else str(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "processor": platform.machine(),
            "threads": self.target.threads or torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def _decoder(self, request: Request, lane: str, settings: Settings) -> Decoder:
        stops = self.target.stop_tokens
        if lane == "ar":
            return Autoregressive()
        if lane == "tr":
            return TokenRecycling(self.memories["tr"], settings, stops, request.image_sha)
        if lane in ("recap", "recap+"):
            method = Recap if lane == "recap" else RecapPlus
            cost = self.cost_for(request, settings)
            return method(self.memories[lane], cost, settings, stops, request.image_sha)
        raise RecapError(f"There is no lane {lane!r}; there are {', '.join(ALL_LANES)}.")

    def _text(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True)) if self.tokenizer else ""

    def _token_text(self, token: int) -> str:
        return str(self.tokenizer.decode([token])) if self.tokenizer else str(token)

    @cached_property
    def _tokenizer_sha(self) -> str:
        """Hash of the vocabulary: two traces with the same one number their tokens alike."""
        words = sorted(self.tokenizer.get_vocab().items()) if self.tokenizer else []
        return hashlib.sha256(repr(words).encode()).hexdigest()


def as_list(image: Picture | Sequence[Picture] | None) -> list[Picture]:
    """No picture, one or several, as a list."""
    if image is None:
        return []
    return [image] if isinstance(image, Picture) else list(image)
