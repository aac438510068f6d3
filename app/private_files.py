"""Where visitors' files lie: a folder of this process alone, which goes when the process does."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from threading import Event
from types import FrameType

PREFIX = "recap-inspector-"


def use_private_folder() -> Path:
    """Have gradio keep uploads, pictures and traces in a folder of our own; to be called before the page is built.

    gradio's own is shared by all its programs on the machine, whose files each of them serves, and is left behind when
    a program is ended. Folders of earlier runs that were killed are removed too. GRADIO_TEMP_DIR is heeded if set.
    """
    given = os.environ.get("GRADIO_TEMP_DIR")
    if given:
        return Path(given)
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        if _is_orphan(left):
            shutil.rmtree(left, ignore_errors=True)
    owner = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner}-"))  # for this user alone to read
    os.environ["GRADIO_TEMP_DIR"] = str(folder)

    def remove() -> None:
        if os.getpid() == owner:  # a forked child ends earlier
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _is_orphan(folder: Path) -> bool:
    """Whether the process that made it is gone."""
    number = folder.name.removeprefix(PREFIX).split("-")[0]
    if not number.isdigit() or folder.is_symlink():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it lives, and is another user's
        return False
    return False


def end_as_asked() -> None:
    """Have SIGTERM, with which services and containers end a program, leave nothing behind. The exit status is 0.

    To be called first: what is registered with `atexit` later runs before the end. A run in the middle of a pass is not
    waited for, and Python's own clearing up under its feet would abort the process.
    """

    asked = Event()

    def leave(number: int, frame: FrameType | None) -> None:
        asked.set()
        sys.exit(0)

    def end() -> None:
        if asked.is_set():
            os._exit(0)

    atexit.register(end)
    signal.signal(signal.SIGTERM, leave)
