"""`python app.py` in its own process, asked over HTTP by hand: what other clients than the page may do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent
START_S = 300  # a busy machine takes minutes to import what the page needs


class Server:
    """The running program."""

    def __init__(self, temporary: Path, **environment: str) -> None:
        """Start it; its files go under `temporary`."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        ours = {"GRADIO_SERVER_PORT": str(port), "TMPDIR": str(temporary), "SPACE_ID": "", "RECAP_MODEL": ""}
        kept = {name: value for name, value in os.environ.items() if name != "GRADIO_TEMP_DIR"}
        self.log = temporary / f"{port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "app.py"], cwd=ROOT, env=kept | ours | environment, stdout=log, stderr=log
            )
        self.url = f"http://127.0.0.1:{port}"

    def wait(self) -> None:
        """Until the model can be asked."""
        for _ in range(5 * START_S):
            try:
                if httpx.get(f"{self.url}/health", timeout=10).status_code == 200:
                    return
            except httpx.HTTPError:
                assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.2)
        raise TimeoutError(self.log.read_text())

    def memory(self) -> int:
        """Bytes that the process holds in memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def served(temporary: Path, **environment: str) -> Iterator[Server]:
    """The program once its model can be asked; it is ended on the way out."""
    server = Server(temporary, **environment)
    try:
        server.wait()
        yield server
    finally:
        server.process.kill()
        server.process.wait(30)


class Visitor:
    """One client with a session of its own, as a page has."""

    def __init__(self, url: str, name: str) -> None:
        self.client = httpx.Client(base_url=f"{url}/gradio_api", timeout=600)
        self.session = name
        config = self.client.get(f"{url}/config").json()
        self.ask_number = next(fn["id"] for fn in config["dependencies"] if fn["api_name"] == "ask")

    def upload(self, data: bytes) -> dict[str, Any]:
        (path,) = self.client.post("/upload", files={"files": ("p.png", data)}).json()
        return {"path": path, "meta": {"_type": "gradio.FileData"}}

    def join(self, picture: dict[str, Any] | None, question: str, lanes: list[str], limit: int = 16) -> str:
        """Ask; the number of the event."""
        body = {
            "fn_index": self.ask_number,
            "session_hash": self.session,
            "data": [picture, question, lanes, limit, "auto"],
        }
        reply = self.client.post("/queue/join", json=body)
        reply.raise_for_status()
        return reply.json()["event_id"]

    def events(self) -> Iterator[dict[str, Any]]:
        """What the server tells of this visitor's events, until the last of them has ended; leaving closes the line."""
        with self.client.stream("GET", "/queue/data", params={"session_hash": self.session}) as lines:
            for line in lines.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    if event["msg"] == "close_stream":
                        return
                    yield event

    def answer(self, *asked: Any, **more: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        """Ask and wait: text, table and trace file, and everything that was told on the way."""
        self.join(*asked, **more)
        told = list(self.events())
        assert told[-1]["msg"] == "process_completed" and told[-1]["success"], told[-1]
        return told[-1]["output"]["data"], told
