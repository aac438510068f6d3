"""Training batches: one picture, many questions, in one sequence.

    prefix   <|im_start|>user\\n<|vision_start|> 49 visual tokens <|vision_end|>
    branch   question<|im_end|>\\n<|im_start|>assistant\\nanswer<|im_end|>     (a second turn follows inside its branch)

Every branch sees the prefix and itself, never a sibling, and its positions start right after the prefix: the model
learns exactly what it would learn from one sequence per question, but the picture is encoded once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen3VLProcessor

from .examples import SAMPLERS, seeded
from .model import GRID, VISUAL_TOKENS
from .picture import MARK_SLOTS, Picture
from .questions import ASKERS, TWO_TURN, Dialogue, fact_words, single_turn

IGNORED = -100
LONG = 160  # characters from which a dialogue counts as long
MOST_DRAWS = 60  # questions drawn for a picture, those passed over included: a sign has few to ask
PICTURE_MIX = {"things": 0.38, "chart": 0.14, "receipt": 0.14, "sign": 0.06, "table": 0.28}


def sample_picture(rng: random.Random) -> Picture:
    return SAMPLERS[rng.choices(tuple(PICTURE_MIX), tuple(PICTURE_MIX.values()))[0]](rng)


@dataclass
class Batch:
    """B pictures; S tokens a sequence; T visual tokens a picture."""

    pixel_values: Tensor  # [B * patches, values of a patch]
    image_grid_thw: Tensor  # [B, 3]
    mark_labels: Tensor  # [B * T, MARK_SLOTS] token ids, IGNORED where nothing is said
    input_ids: Tensor | None = None  # [B, S]
    position_ids: Tensor | None = None  # [3, B, S]
    attention_mask: Tensor | None = None  # [B, 1, S, S], 0 where seen and a large negative number elsewhere
    labels: Tensor | None = None  # [B, S]: the token each position should predict, IGNORED outside answers
    sought: Tensor | None = None  # [B, S, MARK_SLOTS]: at a question's word, the mark labels of the one tile it names
    closed: Tensor | None = None  # [B, S]: number of the closed question whose answer is predicted here, else 0

    def to(self, device: torch.device) -> Batch:
        return Batch(**{k: v if v is None else v.to(device) for k, v in self.__dict__.items()})


class Packer:
    """Turns pictures and dialogues into batches with the model's own processor."""

    def __init__(self, processor: Qwen3VLProcessor) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        encode = self.encode
        self.prefix = [
            *encode("<|im_start|>user\n<|vision_start|>"),
            *encode("<|image_pad|>") * VISUAL_TOKENS,
            *encode("<|vision_end|>"),
        ]
        self.first_visual = self.prefix.index(encode("<|image_pad|>")[0])
        self.branch_position = self.first_visual + GRID + 1  # of the first token of every branch, on all three axes
        self.ask, self.end = encode("<|im_end|>\n<|im_start|>assistant\n"), encode("<|im_end|>")
        self.again = encode("\n<|im_start|>user\n")

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def fact_tokens(self) -> Tensor:
        """[V] bool: the tokens that tell something of a picture, in an answer: names, colours, places, numbers."""
        facts = torch.zeros(len(self.tokenizer), dtype=torch.bool)
        for word in fact_words():
            for form in (word, " " + word, word.capitalize(), " " + word.capitalize()):
                facts[self.encode(form)[0]] = True
        return facts

    # ---- pictures

    def pictures(self, pictures: list[Picture]) -> Batch:
        """Pixels and mark labels alone: what the vision tower learns from first."""
        pixels = self.processor.image_processor(
            [p.render(supersample=False).reduce(2) for p in pictures], return_tensors="pt"
        )
        labels = torch.tensor([self._tile_labels(p) for p in pictures]).view(-1, MARK_SLOTS)
        return Batch(pixels.pixel_values, pixels.image_grid_thw, labels)

    def _tile_labels(self, picture: Picture) -> list[list[list[int]]]:
        """[GRID][GRID][MARK_SLOTS]: an empty tile says padding in its first slot."""
        empty = [self.tokenizer.pad_token_id] + [IGNORED] * (MARK_SLOTS - 1)
        grid = [[list(empty) for _ in range(GRID)] for _ in range(GRID)]
        for (row, column), words in picture.marks().items():
            grid[row][column] = self._mark_labels(words)
        return grid

    def _mark_labels(self, words: list[str | None]) -> list[int]:
        """[MARK_SLOTS]: the first token of every word, IGNORED where nothing is said."""
        slots = [IGNORED if w is None else self.encode(w if w.isdigit() else " " + w)[0] for w in words[:MARK_SLOTS]]
        return slots + [IGNORED] * (MARK_SLOTS - len(slots))

    def _sought_labels(self, picture: Picture, question: list[int]) -> dict[int, list[int]]:
        """By position, what a question's token should make the model look up: a tile's marks, or a number of things.

        A word names a tile together with an earlier one (a column and a name, a row and a side), or alone if it is the
        tile's first word (a kind, a label, an item). A colour or a plural asks how many there are.
        """
        counts = {self.encode(" " + word)[0]: self._mark_labels([str(n)]) for word, n in picture.counts().items()}
        tiles = [self._mark_labels(words) for words in picture.marks().values() if words[0]]
        said = {token for labels in tiles for token in labels}
        found: dict[int, list[int]] = {}
        earlier: list[int] = []
        for i, token in enumerate(question):
            if token in counts:
                found[i] = counts[token]
            if token in counts or token not in said:
                continue
            both = [[labels for labels in tiles if token in labels and other in labels] for other in reversed(earlier)]
            alone = [labels for labels in tiles if token == labels[0]]
            named = next((group for group in (*both, alone) if len(group) == 1), None)
            if named:
                found[i] = named[0]
            earlier.append(token)
        return found

    # ---- pictures with questions

    def branch(self, dialogue: Dialogue) -> tuple[list[int], list[int]]:
        """Token ids after the prefix, and the label of each of them."""
        ids: list[int] = []
        labels: list[int] = []
        for i, (question, answer) in enumerate(dialogue.turns):
            heard = [*(self.again if i else []), *self.encode(question), *self.ask]
            said = [*self.encode(answer), *self.end]
            ids += heard + said
            labels += [IGNORED] * (len(heard) - 1) + said + [IGNORED]  # each position predicts the next token
        return ids, labels

    def talks(self, pictures: list[Picture], dialogues: list[list[Dialogue]]) -> Batch:
        """The whole batch. dialogues: for each picture its branches."""
        batch = self.pictures(pictures)
        rows = [[(*self.branch(d), d.closed) for d in branches] for branches in dialogues]
        length = len(self.prefix) + max(sum(len(ids) for ids, _, _ in row) for row in rows)
        shape = (len(pictures), length)
        input_ids = torch.full(shape, self.tokenizer.pad_token_id)
        labels, closed = torch.full(shape, IGNORED), torch.zeros(shape, dtype=torch.long)
        sought = torch.full((*shape, MARK_SLOTS), IGNORED)
        position_ids, branch_of = torch.zeros(3, *shape, dtype=torch.long), torch.full(shape, -1)
        questions = 0
        for b, row in enumerate(rows):
            at = len(self.prefix)
            input_ids[b, :at], position_ids[:, b, :at], branch_of[b, :at] = (
                torch.tensor(self.prefix),
                self._prefix_positions(),
                0,
            )
            for number, (ids, wanted, is_closed) in enumerate(row, start=1):
                span = slice(at, at + len(ids))
                input_ids[b, span], labels[b, span], branch_of[b, span] = (
                    torch.tensor(ids),
                    torch.tensor(wanted),
                    number,
                )
                position_ids[:, b, span] = self.branch_position + torch.arange(len(ids))
                asked = ids[: next(i for i, label in enumerate(wanted) if label != IGNORED)]
                for i, tile_labels in self._sought_labels(pictures[b], asked).items():
                    sought[b, at + i] = torch.tensor(tile_labels)
                if is_closed:
                    questions += 1
                    closed[b, span] = torch.where(labels[b, span] != IGNORED, questions, 0)
                at += len(ids)
        batch.input_ids, batch.labels, batch.closed, batch.position_ids = input_ids, labels, closed, position_ids
        batch.sought = sought
        batch.attention_mask = self._mask(branch_of)
        return batch

    def _prefix_positions(self) -> Tensor:
        """M-RoPE positions of the prefix, [3, prefix]: visual tokens share t (Qwen2-VL, section 2.1)."""
        start, tiles = self.first_visual, torch.arange(VISUAL_TOKENS)
        positions = torch.arange(len(self.prefix)).expand(3, -1).clone()
        positions[:, start : start + VISUAL_TOKENS] = start + torch.stack([tiles * 0, tiles // GRID, tiles % GRID])
        positions[:, start + VISUAL_TOKENS :] = start + GRID
        return positions

    @staticmethod
    def _mask(branch_of: Tensor) -> Tensor:
        """branch_of: [B, S], 0 in the prefix, 1.. in branches, -1 in padding."""
        earlier = torch.ones(branch_of.shape[1], branch_of.shape[1], dtype=torch.bool).tril()
        own = (branch_of[:, :, None] == branch_of[:, None, :]) | (branch_of[:, None, :] == 0)
        return torch.zeros(own.shape).masked_fill(~(own & earlier), torch.finfo(torch.float32).min)[:, None]

    # ---- sampling

    def sample_talks(
        self,
        key: tuple[int | str, ...],
        count: int,
        long_share: float,
        closed_share: float = 0.0,
        split: str = "train",
        length: int = 360,
    ) -> Batch:
        """`count` pictures with different questions for about `length` tokens each.

        A share `long_share` of the pictures opens with a description; of the open short questions `closed_share`
        are passed over, so that the closed ones, which each need one thing found in the picture, come more often.
        """
        pictures, dialogues = [], []
        for i in range(count):
            rng = seeded(split, *key, i)
            picture = sample_picture(rng)
            branches = [single_turn(picture, rng, long=True)] if rng.random() < long_share else []
            used = sum(len(self.branch(dialogue)[0]) for dialogue in branches)
            asked: set[str] = set()
            for _ in range(MOST_DRAWS):
                if used >= length:
                    break
                two = rng.random() < 0.1
                dialogue = ASKERS[TWO_TURN](picture, rng) if two else single_turn(picture, rng, long=False)
                is_long = sum(len(text) for turn in dialogue.turns for text in turn) > LONG
                if (
                    dialogue.turns[0][0] in asked
                    or (not dialogue.closed and rng.random() < closed_share)
                    or (is_long and rng.random() > long_share)
                ):
                    continue
                asked.add(dialogue.turns[0][0])
                branches.append(dialogue)
                used += len(self.branch(dialogue)[0])
            pictures.append(picture)
            dialogues.append(branches)
        return self.talks(pictures, dialogues)

    def sample_pictures(self, key: tuple[int | str, ...], count: int, split: str = "train") -> Batch:
        return self.pictures([sample_picture(seeded(split, *key, i)) for i in range(count)])
