"""From a model's name to a folder on this disk: downloads safetensors and plain text only, and says what went wrong.

A model whose files are all on this disk is taken as it is; the Hub is not asked again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm import tqdm

from recap_engine.errors import RecapError, first_line

PLAIN = ["*.json", "*.txt", "*.jinja", "*.model"]  # configuration, vocabulary and templates; none of them is code
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
GIGABYTE = 10**9
ENDS = 2**20  # bytes at either end of a file that are looked at to know it again

Downloaded = Callable[[int, int], None]  # bytes that are here, bytes in all; called from the downloading threads


def local_folder(name: str) -> Path | None:
    """The folder that `name` is, or where a model of that name lies complete on this disk; None if there is neither.

    Raises RecapError for a path where there is no folder.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or os.sep != "/" and os.sep in name:
        raise RecapError(f"There is no folder {name}.")
    try:
        folder = Path(snapshot_download(name, allow_patterns=PLAIN, local_files_only=True))
    except (OSError, ValueError):  # not there, or not a name; the download says which
        return None
    return folder if missing_weights(folder) == [] else None


def on_disk(name: str) -> bool:
    """Whether a model can be loaded without a network."""
    try:
        return local_folder(name) is not None
    except RecapError:
        return False


def missing_weights(folder: Path) -> list[str]:
    """Names of the safetensors files that the model in a folder consists of and that are not there."""
    try:
        names = sorted(set(json.loads((folder / INDEX).read_text("utf-8"))["weight_map"].values()))
    except FileNotFoundError:
        names = [SINGLE]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecapError(f"The list of weights, {INDEX}, is damaged; download the model again.") from error
    return [name for name in names if not (folder / name).is_file()]


def revision_of(folder: Path) -> str:
    """Tells one state of a model's weights from another: the Hub's commit, or a digest of a folder's own files.

    The digest takes in the size, the beginning and the end of every file, which training changes too.
    """
    if folder.parent.name == "snapshots":
        return folder.name
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(f"{path.name} {path.stat().st_size}".encode())
            digest.update(file.read(ENDS))
            file.seek(max(0, path.stat().st_size - ENDS))
            digest.update(file.read(ENDS))
    return digest.hexdigest()[:40]


def download_plain(name: str) -> Path:
    """Everything but the weights of a model of the Hub; returns the folder. Raises RecapError."""
    try:
        return Path(snapshot_download(name, allow_patterns=PLAIN))
    except Exception as error:  # the Hub's client raises errors of its own, of its transport's, and of the disk
        raise explained(error, name) from error


def download_weights(name: str, folder: Path, progress: Downloaded | None = None) -> None:
    """Complete `folder`, which `download_plain` returned, with the model's safetensors files. Raises RecapError."""
    wanted = missing_weights(folder)
    options: dict[str, Any] = {"allow_patterns": wanted, "revision": folder.name}
    try:
        size = sum(file.file_size for file in snapshot_download(name, **options, dry_run=True))
        free = shutil.disk_usage(folder).free
        if size > free:
            raise RecapError(
                f"{name} takes {size / GIGABYTE:.1f} GB on disk and {free / GIGABYTE:.1f} GB are free: make room, "
                "choose a smaller model, or point HF_HOME to a larger disk."
            )
        snapshot_download(name, **options, tqdm_class=_reporter(progress, size) if progress else None)
        if missing_weights(folder):
            raise no_weights(name, HfApi().list_repo_files(name, revision=folder.name))
    except RecapError:
        raise
    except Exception as error:  # as above
        raise explained(error, name) from error


def no_weights(name: str, files: list[str]) -> RecapError:
    """What to say of a model among whose files there are no safetensors, or not all."""
    if any(file.endswith(".safetensors") for file in files):
        return RecapError(f"Some of the weights of {name} are missing; download the model again.")
    if any(file.endswith(PICKLES) for file in files):
        return RecapError(
            f"{name} has its weights as pickle files only, which can run code when they are opened; "
            "choose a version with safetensors."
        )
    return RecapError(f"There are no weights of {name}: no file {SINGLE}.")


def explained(error: BaseException, name: str) -> RecapError:
    """A download's error as one sentence with the way out."""
    page = f"{constants.ENDPOINT}/{name}"
    if isinstance(error, GatedRepoError):
        return RecapError(
            f"{name} is gated: accept its licence at {page}, then log in with `hf auth login` or set HF_TOKEN."
        )
    if isinstance(error, RepositoryNotFoundError):
        return RecapError(
            f"There is no public model {name} on the Hub: check its name, or, if it is private, set HF_TOKEN."
        )
    if isinstance(error, HFValidationError):
        return RecapError(f"{name!r} is neither a folder here nor the name of a model, as owner/model.")
    if isinstance(error, LocalEntryNotFoundError | ConnectionError | TimeoutError):
        return RecapError(
            f"{name} is not on this disk and the Hub cannot be reached: connect to a network, or name a local folder."
        )
    if isinstance(error, HfHubHTTPError):
        return RecapError(f"The Hub refused {name} with status {error.response.status_code}; try again later.")
    return RecapError(f"{name} could not be downloaded ({first_line(error)}); try again.")


def _reporter(progress: Downloaded, size: int) -> type[tqdm]:
    """A progress bar that shows nothing and tells `progress` instead. The Hub's client makes several; bytes count."""

    class Reporter(tqdm):
        def display(self, *args: Any, **kwargs: Any) -> None:
            pass

        def update(self, n: float | None = 1) -> bool | None:
            shown = super().update(n)
            if self.unit == "B":
                progress(min(int(self.n), size), size)
            return shown

    return Reporter
