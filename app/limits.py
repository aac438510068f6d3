"""How much one address may ask of the server, and that the server asks nothing of others.

The limits are generous: a class of thirty behind one address never meets them, a script that hammers the server does.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEGABYTE = 10**6
PER_SECOND = 20.0  # requests, or megabytes sent, that an address may go on with
BURST = 600.0  # of them at once
MOST_ADDRESSES = 10_000  # that are remembered
LARGEST_CALL = 2 * MEGABYTE  # of a request without a file
LARGEST_UPLOAD = 60 * MEGABYTE  # of a request with files; gradio bounds each file, and takes a thousand of them

TOO_MANY = "Too many requests came from your address: please wait a few seconds."
TOO_LARGE = "This is larger than the server takes at once."
ELSEWHERE = "This server fetches nothing from elsewhere."


@dataclass
class Bucket:
    """What an address may still do: it fills up with time, and every request takes from it."""

    level: float
    seen: float  # seconds, by the clock of `Limits`


class Limits:
    """ASGI middleware. Refuses with 429, 413 or 403, and a sentence."""

    def __init__(self, app: ASGIApp, behind_proxy: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`behind_proxy`: the visitor's address is the last of X-Forwarded-For, which the proxy wrote.

        Those before it came with the request, so a client can make them up.
        """
        self.app = app
        self.behind_proxy = behind_proxy
        self.clock = clock
        self.buckets: OrderedDict[str, Bucket] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif ":/" in scope["path"] or "/proxy=" in scope["path"]:  # gradio would fetch it and hand it on
            await PlainTextResponse(ELSEWHERE, 403)(scope, receive, send)
        elif scope["method"] != "POST":
            await self.app(scope, receive, send)
        else:
            await self._post(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        most = LARGEST_UPLOAD if headers.get(b"content-type", b"").startswith(b"multipart/") else LARGEST_CALL
        told = headers.get(b"content-length", b"0")
        size = int(told) if told.isdigit() else most + 1
        if size > most:
            await PlainTextResponse(TOO_LARGE, 413)(scope, receive, send)
        elif not self._allows(self._address(scope, headers), 1 + size / MEGABYTE):
            await PlainTextResponse(TOO_MANY, 429, {"Retry-After": "5"})(scope, receive, send)
        else:
            await self.app(scope, _bounded(receive, most), send)

    def _address(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        if self.behind_proxy and b"x-forwarded-for" in headers:
            return headers[b"x-forwarded-for"].decode("latin-1").split(",")[-1].strip()
        return scope["client"][0] if scope.get("client") else ""

    def _allows(self, address: str, cost: float) -> bool:
        """Take `cost` from the address's bucket, if there is as much in it."""
        now = self.clock()
        bucket = self.buckets.pop(address, Bucket(BURST, now))
        self.buckets[address] = bucket  # the latest is last, the first is forgotten first
        if len(self.buckets) > MOST_ADDRESSES:
            self.buckets.popitem(last=False)
        bucket.level = min(BURST, bucket.level + (now - bucket.seen) * PER_SECOND)
        bucket.seen = now
        if bucket.level < cost:
            return False
        bucket.level -= cost
        return True


def _bounded(receive: Receive, most: int) -> Receive:
    """The request's body up to `most` bytes; one that says nothing of its size and goes on ends there."""
    left = most

    async def next_part() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return next_part
