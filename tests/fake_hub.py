"""A Hub of a few models on this machine, that speaks just enough of the real one's HTTP for downloads and refusals."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import constants

COMMIT = "c0ffee" * 6 + "cafe"


class FakeHub(ThreadingHTTPServer):
    """Serves folders as models; those in `gated` refuse their files, and unknown names are not found."""

    def __init__(self, models: dict[str, Path], gated: set[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models = models
        self.gated = gated
        self.served: list[str] = []  # names of files

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """`/api/models/NAME...` tells of a model, `/NAME/resolve/COMMIT/FILE` gives a file."""

    server: FakeHub

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].removeprefix("/api/models/").strip("/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        folder = self.server.models.get(name)
        if folder is None:
            return self._send(404, error="RepoNotFound")
        if not self.path.startswith("/api/"):
            return self._file(name, folder / rest[-1])
        files = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": _hash(f)} for f in folder.iterdir()]
        if rest[:1] == ["tree"]:
            return self._send(200, json.dumps(files).encode(), "application/json")
        siblings = [{"rfilename": file["path"]} for file in files]
        about = {"id": name, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False, "downloads": 0}
        return self._send(200, json.dumps(about).encode(), "application/json")

    do_HEAD = do_GET

    def _file(self, name: str, file: Path) -> None:
        if name in self.server.gated:
            return self._send(403, error="GatedRepo")
        if not file.is_file():
            return self._send(404, error="EntryNotFound")
        if self.command == "GET":
            self.server.served.append(file.name)
        return self._send(200, file.read_bytes(), etag=_hash(file))

    def _send(self, status: int, body: bytes = b"", kind: str = "application/octet-stream", **more: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        if "error" in more:
            self.send_header("X-Error-Code", more["error"])
        if "etag" in more:
            self.send_header("ETag", f'"{more["etag"]}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def fake_hub(
    monkeypatch: pytest.MonkeyPatch, cache: Path, models: dict[str, Path], gated: set[str] = frozenset()
) -> Iterator[FakeHub]:
    """The Hub that huggingface_hub talks to, with an empty `cache`; gone when the block ends."""
    with FakeHub(models, set(gated)) as hub:
        thread = Thread(target=hub.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


def _hash(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
