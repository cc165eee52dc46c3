"""ASGI middleware: requests with a key run once. For FastAPI, Starlette, Django's ASGI application, and any other.

The handler runs on a task of its own and isn't told when the client hangs up: a client that leaves cuts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

import httpx2 as httpx

from . import _http
from ._claims import MAX_BODY_BYTES, Terms
from ._door import Door, Request, merged_terms
from ._http import Headers, Plain
from ._lease import running_under
from .api_types import ClaimRequest, Outcome
from .aworker import AsyncLease, AsyncSemel
from .errors import KeyInvalid, PayloadInvalid, SemelError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LEASE = "semel.lease"
"""Where a handler finds its lease: `request.scope["semel.lease"]`."""


class IdempotencyMiddleware:
    """Put it inside whatever authenticates, and outside whatever acts.

    `principal` says whose request it is (`None`: nobody known); without it, the credentials count as payload. `scope`
    names what is done, for the server's policies and figures. A request without a key passes, unless `require_key`.
    The host that was asked counts as payload, unless `authority` is false: for services that go by several names.
    `credential_headers` count besides the usual ones, and `cookies` names those that do, where it isn't all of them.
    `routes` has terms by path: `{"/refunds": Terms(crash="hold")}`, `/orders/{id}/refunds`, `/admin/*`, `POST /x`.
    An answer is held back until it is whole, for `gather` seconds and 1 MiB; what takes longer goes on as it comes, and
    isn't kept.
    """

    def __init__(  # noqa: PLR0913
        self,
        app: App,
        *,
        semel: AsyncSemel,
        scope: str | Callable[[Scope], str] = "http",
        principal: Callable[[Scope], str | None] | None = None,
        methods: Iterable[str] = _http.METHODS,
        require_key: bool = False,
        terms: Terms | None = None,
        max_body: int = _http.MAX_REQUEST_BYTES,
        authority: bool = True,
        keep_headers: Iterable[str] = (),
        credential_headers: Iterable[str] = (),
        cookies: Iterable[str] = (),
        routes: Mapping[str, Terms] | None = None,
        gather: float = _http.GATHER_SECONDS,
    ) -> None:
        self._app, self._semel, self._scope, self._principal = app, semel, scope, principal
        self._max_body, self._gather = max_body, gather
        self._door = Door.of(
            merged_terms(terms, semel),
            routes=routes,
            methods=methods,
            require_key=require_key,
            authority=authority,
            keep_headers=keep_headers,
            credential_headers=credential_headers,
            cookies=cookies,
        )
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self._app(scope, self._draining(receive), send)
            return
        if scope["type"] != "http" or scope["method"].upper() not in self._door.methods:
            await self._app(scope, receive, send)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        try:
            key = self._door.key(scope["method"], headers)
        except (KeyInvalid, _http.Refused) as error:
            await send_answer(send, _http.of_error(error))
            return
        if key is None:
            with running_under(None):
                await self._app(scope, receive, send)
            return
        await self._keyed(scope, receive, send, headers, key)

    async def idle(self) -> None:
        """Waits for what callers that left have left behind; asked by itself at the end of the lifespan."""
        while self._running:
            await asyncio.wait(self._running)

    async def _keyed(self, scope: Scope, receive: Receive, send: Send, headers: Headers, key: str) -> None:
        body = await read_body(receive, self._max_body)
        if body is None:
            return
        if len(body) > self._max_body:
            plain = _http.problem(413, "idempotency_body_too_large", "The request's body is too large to be compared")
            await send_answer(send, plain, close=True)
            return
        try:
            request, anonymous = self._request(scope, headers, key, body)
        except (KeyInvalid, PayloadInvalid) as error:
            await send_answer(send, _http.of_error(error))
            return
        task = asyncio.create_task(self._run(scope, request, body, send, anonymous))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    def _request(self, scope: Scope, headers: Headers, key: str, body: bytes) -> tuple[ClaimRequest, bool]:
        """What is asked for, and whether nothing says by whom."""
        query = scope.get("query_string", b"").decode("latin-1")
        request = Request(scope["method"], scope["path"], _path(scope), query, headers, body, _certificate(scope))
        principal = self._principal(scope) if self._principal else None
        name = self._scope if isinstance(self._scope, str) else self._scope(scope)
        return self._door.claim(self._semel, request, key, scope=name, principal=principal)

    async def _run(self, scope: Scope, request: ClaimRequest, body: bytes, send: Send, anonymous: bool) -> None:
        try:
            view, lease = await self._semel.admit(request)
        except (SemelError, httpx.HTTPError) as error:
            await send_answer(send, _http.of_error(error))
            return
        if view["status"] == "unprotected":
            with running_under(None):
                await self._app(scope, _replaying(body, asyncio.Event()), send)
        elif lease is None:
            await send_answer(send, _http.replayed(view))
        else:
            async with lease:
                await self._effect({**_without_files(scope), LEASE: lease}, body, send, lease, anonymous)

    async def _effect(self, scope: Scope, body: bytes, send: Send, lease: AsyncLease, anonymous: bool) -> None:
        answered = asyncio.Event()
        gather = _Gather(send, self._gather)
        failure: BaseException | None = None
        try:
            with running_under(lease):
                await self._app(scope, _replaying(body, answered), gather)
        except BaseException as error:
            failure = error
        answered.set()
        await gather.end()
        # What comes after a whole answer, such as a task in the background that fails, changes nothing about it.
        broken = not gather.whole
        location = _http.location_of(gather.headers)
        outcome: Outcome = "retry"
        if not broken:
            outcome = _http.outcome_of_status(gather.status, gather.said, location=location, anonymous=anonymous)
        keeps = outcome in ("complete", "fail")
        kept = _http.kept_answer(gather.status, gather.headers, gather.body(), gather.size, self._door.keep)
        try:
            await lease.settle(outcome, kept if keeps else None)
        except (SemelError, httpx.HTTPError) as error:
            if keeps and not gather.passing:
                await send_answer(send, _http.unsettled(error))
                return
        await gather.release()
        if failure is not None:
            raise failure

    def _draining(self, receive: Receive) -> Receive:
        async def drained() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.idle()
            return message

        return drained


_FILES = ("http.response.pathsend", "http.response.zerocopysend")
"""Ways to answer that leave the body to the server, which could not be kept."""


def _without_files(scope: Scope) -> Scope:
    """The handler sends its files by itself then."""
    extensions = scope.get("extensions")
    if not extensions:
        return scope
    return {**scope, "extensions": {name: value for name, value in extensions.items() if name not in _FILES}}


class _Gather:
    """Takes an answer in. What is too large, takes too long or is an event stream goes to its caller as it comes, and
    isn't kept."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self._start: Message | None = None
        self._chunks: list[bytes] = []
        self._after: list[Message] = []
        self._lock = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self.status = 500
        self.headers: Headers = []
        self.said: str | None = None
        self.size = 0
        self.whole = False
        self.passing = False

    async def __call__(self, message: Message) -> None:
        async with self._lock:
            await self._take(message)
        if self.whole:
            await self.end()

    async def _take(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._begin(message)
        elif kind == "http.response.body":
            chunk = message.get("body", b"")
            self.size += len(chunk)
            self._chunks.append(chunk)
            self.whole = not message.get("more_body", False)
            if self.passing or self.size > MAX_BODY_BYTES:
                await self._pass_on()
        elif kind in _FILES or kind == "http.response.trailers":
            self._after.append(message)
            if kind in _FILES:
                self.whole = kind == _FILES[0] or not message.get("more_body", False)
                self.passing = True
            if self.passing:
                await self._pass_on()
        else:
            # Early hints, pushes and the like are no part of the answer.
            with contextlib.suppress(OSError, RuntimeError):
                await self._send(message)

    def _begin(self, message: Message) -> None:
        self.status = message["status"]
        self.headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message.get("headers", [])]
        said = [value for name, value in self.headers if name.lower() == _http.OUTCOME_HEADER]
        self.said = said[0].strip().lower() if said else None
        self.headers = [pair for pair in self.headers if pair[0].lower() != _http.OUTCOME_HEADER]
        self._start = {**message, "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in self.headers]}
        media = [value for name, value in self.headers if name.lower() == "content-type"]
        self.passing = bool(media) and media[0].lower().startswith("text/event-stream")
        self._timer = asyncio.create_task(self._pass_later())

    async def _pass_later(self) -> None:
        await asyncio.sleep(self._seconds)
        async with self._lock:
            if not self.whole:
                await self._pass_on()

    async def end(self) -> None:
        """Nothing is passed on for the time it takes from here on: it is whole, or never will be."""
        timer, self._timer = self._timer, None
        if timer is not None:
            async with self._lock:
                # Not while it sends.
                timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)

    def body(self) -> bytes | None:
        """The body, where it was kept."""
        return None if self.passing else b"".join(self._chunks)

    async def release(self) -> None:
        """Sends what was held back, now that it is recorded."""
        if self._start is not None or self._chunks or self._after:
            await self._pass_on()

    async def _pass_on(self) -> None:
        self.passing = True
        # The client may be gone; the effect is not cut short for that.
        with contextlib.suppress(OSError, RuntimeError):
            if self._start is not None:
                start, self._start = self._start, None
                await self._send(start)
            chunks, self._chunks = self._chunks, []
            after, self._after = self._after, []
            if chunks:
                more = not self.whole
                await self._send({"type": "http.response.body", "body": b"".join(chunks), "more_body": more})
            for message in after:
                await self._send(message)


def _path(scope: Scope) -> str:
    """The path as it was sent: an escaped slash is no slash. Not all servers say so; then as it was read."""
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"]
    return raw.split(b"?")[0].decode("latin-1") if raw else path


def _certificate(scope: Scope) -> str | None:
    """The client's certificate, of a server that tells it (ASGI's TLS extension)."""
    tls: dict[str, Any] = scope.get("extensions", {}).get("tls", {})
    chain: list[str | None] = list(tls.get("client_cert_chain") or [tls.get("client_cert_name")])
    return chain[0]


def _replaying(body: bytes, answered: asyncio.Event) -> Receive:
    given = False

    async def receive() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await answered.wait()
        return {"type": "http.disconnect"}

    return receive


async def read_body(receive: Receive, most: int) -> bytes | None:
    """The body; one byte more than allowed where it is too large; `None` where the client left before its end."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > most:
            return b"".join(chunks)[: most + 1]
        if not message.get("more_body", False):
            return b"".join(chunks)


async def send_answer(send: Send, plain: Plain, *, close: bool = False) -> None:
    headers = [*plain.headers, ("Content-Length", str(len(plain.body)))]
    if close:
        headers.append(("Connection", "close"))
    coded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    with contextlib.suppress(OSError, RuntimeError):
        await send({"type": "http.response.start", "status": plain.status, "headers": coded})
        await send({"type": "http.response.body", "body": plain.body})
