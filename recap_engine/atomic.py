"""Files that are either the old one or the new one, whatever happens while they are written."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from recap_engine.errors import RecapError


def replace_file(path: Path, content: bytes, what: str) -> None:
    """Write beside the file, to the disk, then put the new one in its place. Raises RecapError about `what`."""
    written = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            written = file.name
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, path)
    except OSError as error:
        if written:
            with suppress(OSError):
                os.unlink(written)
        told = error.strerror or type(error).__name__
        raise RecapError(f"{what} could not be saved ({told}); what was saved before is still there.") from error
