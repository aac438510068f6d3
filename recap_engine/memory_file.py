"""Persistent memories as one safetensors file, of use only to the model and the tokenizer that it was made with.

A file holds numbers only, no code. Every one of them is checked before a memory is made of it, as a file may come from
anybody. The columns of a memory, named `<memory>.<column>`, with r records, k tokens in the longest, and n_o keys of
order o:

    tokens         int32   [r, k]    best first, then NONE
    probabilities  float32 [r, k]    NONE where there is no token, and in a record that has none
    entropy        float32 [r]
    request        int64   [r]       which request wrote it,
    step           int32   [r]       at which step,
    accepted       bool    [r]       and whether its position was accepted
    keys<o>        int32   [n_o, o]  for o = 1, 2, 3
    of<o>          int32   [n_o]     the key's record
    pictured       int64   [p]       requests,
    pictures       uint8   [p, 32]   the SHA-256 of their pictures,
    with_picture   bool    [p]       and whether they had any
    state          float64 [4]       requests served; promised, kept and counted steps of `Promises`
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from recap_engine.atomic import replace_file
from recap_engine.decoders.token_recycling import TOP_K
from recap_engine.errors import RecapError
from recap_engine.memory import NO_TOKEN, PROMPT_STEP, Promises, Record, TokenMemory

FORMAT, VERSION = "recap-memories", "1"
MOST_BYTES = 256 * 2**20
MOST_TOP_K = 64
MOST_REQUESTS = 2**40
MOST_PROMISED = 10**6
MATRICES = ("tr",)  # memories whose records hold TOP_K tokens each, and probabilities only for the trace
NONE = -1
SLACK = 0.01  # by which the rounded probabilities of a record may exceed 1 together
COLUMNS: dict[str, tuple[str, int]] = {  # type and number of dimensions
    "tokens": ("I32", 2),
    "probabilities": ("F32", 2),
    "entropy": ("F32", 1),
    "request": ("I64", 1),
    "step": ("I32", 1),
    "accepted": ("BOOL", 1),
    **{f"keys{order}": ("I32", 2) for order in (1, 2, 3)},
    **{f"of{order}": ("I32", 1) for order in (1, 2, 3)},
    "pictured": ("I64", 1),
    "pictures": ("U8", 2),
    "with_picture": ("BOOL", 1),
    "state": ("F64", 1),
}
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Binding:
    """What a memory belongs to: another model predicts otherwise, another tokenizer numbers otherwise."""

    model: str
    revision: str
    tokenizer: str  # hash of the vocabulary


def save(path: str | Path, memories: Mapping[str, TokenMemory], binding: Binding) -> None:
    """Write `memories` in one go: whatever happens, the file is the old one or the new one. Raises RecapError."""
    tensors = {f"{name}.{column}": a for name, memory in memories.items() for column, a in columns(memory).items()}
    content = to_bytes(tensors, {"format": FORMAT, "version": VERSION, **asdict(binding)})
    replace_file(Path(path), content, "The memories")


def load(path: str | Path, binding: Binding, vocabulary: int, names: Iterable[str]) -> dict[str, TokenMemory]:
    """The memories `names` of a file; one that it lacks is empty. `vocabulary` is the number of tokens there are.

    Raises RecapError with one sentence for a file that is foreign, damaged, forged, too large or not there.
    """
    names = list(names)
    tensors = _read(Path(path), binding)
    unknown = {name.partition(".")[0] for name in tensors} - set(names)
    _demand(not unknown, "it holds a memory that this program does not have")
    memories = {}
    for name in names:
        own = {key.partition(".")[2]: array for key, array in tensors.items() if key.partition(".")[0] == name}
        if own:
            _check(own, vocabulary, name in MATRICES)
        memories[name] = from_columns(own) if own else TokenMemory()
        memories[name].trim()
    return memories


def columns(memory: TokenMemory) -> Columns:
    """A memory as arrays. It may be written to meanwhile."""
    tables = {order: list(table.items()) for order, table in memory.tables.items()}
    numbers: dict[Record, int] = {}  # a record is equal only to itself
    of = {order: [numbers.setdefault(record, len(numbers)) for _, record in tables[order]] for order in tables}
    parts = [(record.tokens, record.probabilities, record.entropy, record.written) for record in numbers]
    tokens, probabilities, entropy, written = zip(*parts) if parts else ((), (), (), ())
    request, step, accepted = zip(*written) if parts else ((), (), ())
    width = max(map(len, tokens), default=0)
    pictures = list(memory.pictures.items())
    promises = memory.promises
    return {
        "tokens": _padded(tokens, width, np.int32),
        "probabilities": _padded(probabilities, width, np.float32),
        "entropy": np.array(entropy, np.float32),
        "request": np.array(request, np.int64),
        "step": np.array(step, np.int32),
        "accepted": np.array(accepted, np.bool_),
        **{f"keys{o}": np.array([key for key, _ in tables[o]], np.int32).reshape(-1, o) for o in tables},
        **{f"of{o}": np.array(of[o], np.int32) for o in of},
        "pictured": np.array([request for request, _ in pictures], np.int64),
        "pictures": np.frombuffer(
            b"".join(bytes.fromhex(picture or "00" * 32) for _, picture in pictures), np.uint8
        ).reshape(-1, 32),
        "with_picture": np.array([picture is not None for _, picture in pictures], np.bool_),
        "state": np.array([memory.requests, promises.promised, promises.kept, promises.steps], np.float64),
    }


def from_columns(columns: Columns) -> TokenMemory:
    """The memory that `columns` made arrays of."""
    parts = (columns[name].tolist() for name in ("tokens", "probabilities", "entropy", "request", "step", "accepted"))
    sizes = (columns["tokens"] != NONE).sum(1).tolist()
    records = [
        Record(tokens[:size], probabilities[:size] if probabilities[0] != NONE else [], entropy, (request, step, kept))
        for size, tokens, probabilities, entropy, request, step, kept in zip(sizes, *parts)
    ]
    keys = {
        1: columns["keys1"][:, 0].tolist(),
        2: list(map(tuple, columns["keys2"].tolist())),
        3: list(map(tuple, columns["keys3"].tolist())),
    }
    tables: dict[int, dict[Any, Record]] = {
        order: {key: records[number] for key, number in zip(keys[order], columns[f"of{order}"].tolist())}
        for order in keys
    }
    pictured, had = columns["pictured"].tolist(), columns["with_picture"].tolist()
    shas = [row.tobytes().hex() if has else None for row, has in zip(columns["pictures"], had)]
    requests, promised, kept, steps = columns["state"].tolist()
    promises = Promises(promised, kept, int(steps))
    return TokenMemory(tables[1], tables[2], tables[3], int(requests), dict(zip(pictured, shas)), promises)


def _padded(rows: Iterable[list[Any]], width: int, kind: Any) -> np.ndarray:
    """[rows, width]: each row, then NONE."""
    rows = list(rows)
    padded = np.full((len(rows), width), NONE, kind)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    padded[np.arange(width) < sizes[:, None]] = np.fromiter(chain.from_iterable(rows), kind, int(sizes.sum()))
    return padded


def _read(path: Path, binding: Binding) -> Columns:
    """A file's tensors, once it is known to be ours, this model's, and made of columns of the right types."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RecapError(f"This memory file is larger than the {MOST_BYTES // 2**20} MB that are read.")
        with safe_open(path, framework="numpy") as file:
            _check_binding(file.metadata() or {}, binding)
            kinds = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is not a dict
            for name, kind in kinds.items():
                expected = COLUMNS.get(name.partition(".")[2])
                _demand(
                    expected == (kind.get_dtype(), len(kind.get_shape())), f"{name!r:.40} is not one of its columns"
                )
            return {name: file.get_tensor(name) for name in kinds}
    except FileNotFoundError as error:
        raise RecapError(f"There is no memory file {path.name}.") from error
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise RecapError("This is not a memory file, or it is damaged: it is no safetensors file.") from error


def _check_binding(metadata: Mapping[str, str], binding: Binding) -> None:
    if metadata.get("format") != FORMAT:
        raise RecapError("This is a safetensors file, but no memory file.")
    if metadata.get("version") != VERSION:
        raise RecapError("This memory file was written by another version of this program, which reads it better.")
    if metadata.get("model") != binding.model:
        raise RecapError(
            f"These memories are those of another model, {metadata.get('model', '')!r:.80}; "
            f"the one that is loaded is {binding.model!r:.80}."
        )
    if metadata.get("revision") != binding.revision:
        raise RecapError("These memories were made with another revision of this model's weights.")
    if metadata.get("tokenizer") != binding.tokenizer:
        raise RecapError("These memories were made with another tokenizer, which numbers its tokens otherwise.")


def _check(given: Columns, vocabulary: int, matrix: bool) -> None:
    """Raises RecapError for columns that no memory leaves. A matrix holds TOP_K tokens in every record."""
    _demand(set(given) == set(COLUMNS), "it lacks a column")
    _demand(given["state"].shape == (4,), "its state is not four numbers")
    tokens, count = given["tokens"], len(given["tokens"])
    _demand(
        all(len(given[name]) == count for name in ("probabilities", "entropy", "request", "step", "accepted"))
        and given["probabilities"].shape == tokens.shape,
        "its columns differ in length",
    )
    _check_records(tokens, given["probabilities"], vocabulary, matrix)
    _demand(_within(given["entropy"], 0.0, 1.0), "it has an entropy that is not from 0 to 1")
    for order in (1, 2, 3):
        keys, of = given[f"keys{order}"], given[f"of{order}"]
        _demand(keys.shape == (len(of), order), f"its keys of order {order} have another length")
        _demand(_within(of, 0, count - 1), "it has a key without a record")
        _demand(_within(keys, 0 if order == 1 else NO_TOKEN, vocabulary - 1), "it has a token that there is not")
        _demand(len(set(map(tuple, keys.tolist()))) == len(of), "it has a key twice")
    _check_requests(given)


def _check_records(tokens: np.ndarray, probabilities: np.ndarray, vocabulary: int, matrix: bool) -> None:
    """[r, k] each: tokens that there are, each once in a record; probabilities of all of a record's tokens or none."""
    count, width = tokens.shape
    _demand(width <= MOST_TOP_K, f"it has records of more than {MOST_TOP_K} tokens")
    if not count:
        return
    sizes = (tokens != NONE).sum(1)
    there = np.arange(width) < sizes[:, None]
    ordered = np.sort(tokens, 1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NONE)
    _demand(_within(tokens[there], 0, vocabulary - 1), "it has a token that there is not")
    _demand(not twice.any(), "it has a record with a token twice")
    _demand(bool((sizes == TOP_K if matrix else sizes > 0).all()), "it has a record of the wrong length")
    bare = probabilities[:, 0] == NONE
    _demand(matrix or not bare.any(), "it has a record without probabilities")
    given = np.where(there & ~bare[:, None], probabilities, 0.0)
    _demand(bool((probabilities[~(there & ~bare[:, None])] == NONE).all()), "it has a probability without a token")
    _demand(_within(given, 0.0, 1.0), "it has a probability that is not from 0 to 1")
    _demand(bool((np.diff(given, axis=1) <= 0.0).all()), "it has a record that is not sorted")
    _demand(bool((given[~bare, 0] > 0.0).all()), "it has a record of impossible tokens")
    _demand(_within(given.sum(1), 0.0, 1.0 + SLACK), "it has probabilities that add up to more than 1")


def _check_requests(given: Columns) -> None:
    """Who wrote what: requests that were served, whose pictures are known."""
    requests, promised, kept, steps = given["state"].tolist()
    _demand(0 <= requests <= MOST_REQUESTS and 0 <= steps <= MOST_REQUESTS, "it has served an impossible number")
    _demand(0.0 <= promised <= MOST_PROMISED and 0.0 <= kept <= MOST_PROMISED, "it has made impossible promises")
    _demand(requests.is_integer() and steps.is_integer(), "it has served an impossible number")
    pictured = given["pictured"]
    _demand(given["pictures"].shape == (len(pictured), 32), "its pictures have other lengths")
    _demand(len(given["with_picture"]) == len(pictured), "its pictures have other lengths")
    _demand(_within(pictured, 1, requests) and len(np.unique(pictured)) == len(pictured), "it has a picture twice")
    _demand(bool(np.isin(given["request"], pictured).all()), "it has a record whose picture is not known")
    _demand(_within(given["step"], PROMPT_STEP, MOST_REQUESTS), "it has a record of an impossible step")


def _within(numbers: np.ndarray, low: float, high: float) -> bool:
    """No number is NaN or beyond."""
    return bool(((numbers >= low) & (numbers <= high)).all())


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RecapError(f"This memory file is damaged or forged: {otherwise}.")
