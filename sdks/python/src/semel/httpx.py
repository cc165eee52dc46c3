"""A transport of httpx2 that sends a request until there is an answer, always with the key it began with.

For clients that are built on httpx2, such as OpenAI's and most generated ones:

    client = OpenAI(http_client=httpx2.Client(transport=IdempotencyTransport()), max_retries=0)

Set the retries of such a client to 0: a request that it makes anew has a key of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field

import httpx2 as httpx

from ._requests import HEADER
from ._send import MAX_ANSWER_BYTES, arepeat, repeat
from .errors import GaveUp
from .keys import check_key, new_key
from .retry import Course, RetryBudget, RetryPolicy

KEY = "idempotency_key"
"""The extension by which a request brings its key: `client.post(…, extensions={"idempotency_key": "charge-ord-1"})`."""

INFO = "semel"
"""The extension of a response that has the `CallInfo`."""

METHODS = frozenset({"POST", "PATCH"})
MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""A request's body is kept in memory, to be sent again."""


@dataclass(frozen=True)
class CallInfo:
    """What is known about an answer besides itself."""

    key: str = field(repr=False)
    attempts: int
    """How many it took."""
    replayed: bool
    """Whether an earlier request did it, and this is its answer."""
    gave_up: GaveUp | None = None
    """Why this answer is not the last word: nothing is left to ask again with."""


def info_of(response: httpx.Response) -> CallInfo | None:
    """What is known about an answer that came by one of these transports."""
    found = response.extensions.get(INFO)
    return found if isinstance(found, CallInfo) else None


def gave_up_of(error: BaseException | None) -> GaveUp | None:
    """What an error of a client was made from: `unknown` and `key` are in it. For errors without an answer."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, GaveUp):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


class _Base:
    def __init__(self, retry: RetryPolicy | None, budget: RetryBudget | None, methods: Iterable[str]) -> None:
        self.retry, self.budget = retry or RetryPolicy(), budget or RetryBudget()
        self._methods = frozenset(method.upper() for method in methods)

    def _key(self, request: httpx.Request) -> str | None:
        """The request's key. It stays with the request, so that a redirect has it too."""
        given = request.extensions.get(KEY) or request.headers.get(HEADER)
        if given is None and request.method.upper() not in self._methods:
            return None
        key = new_key() if given is None else str(given)
        request.headers[HEADER] = key if HEADER in request.headers else check_key(key)
        return key

    def _course(self, key: str) -> Course:
        return Course(self.retry, self.budget, key=key)


def _is_stream(response: httpx.Response) -> bool:
    media = response.headers.get("content-type", "").lower()
    return response.status_code < 400 and media.startswith("text/event-stream")


@dataclass
class _Attempt:
    """An answer as it came: read whole, so that one that breaks off is asked for again, or a stream that goes on."""

    raw: httpx.Response
    body: bytes | None
    seen: httpx.Response

    @staticmethod
    def of(raw: httpx.Response, body: bytes | None) -> _Attempt:
        # The body is decoded here, so that one that can't be is asked for again.
        return _Attempt(raw, body, httpx.Response(raw.status_code, headers=raw.headers, content=body or b""))

    def response(self, info: CallInfo, stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> httpx.Response:
        extensions = {**self.raw.extensions, INFO: info}
        return httpx.Response(self.raw.status_code, headers=self.raw.headers, stream=stream, extensions=extensions)

    def ended(self, key: str, attempts: int, gave_up: GaveUp | None = None) -> httpx.Response:
        replayed = self.raw.headers.get("idempotent-replayed") == "true"
        stream = self.raw.stream if self.body is None else httpx.ByteStream(self.body)
        return self.response(CallInfo(key, attempts, replayed, gave_up), stream)


def _again(request: httpx.Request, body: bytes) -> httpx.Request:
    stream = httpx.ByteStream(body)
    return httpx.Request(
        request.method, request.url, headers=request.headers, stream=stream, extensions=dict(request.extensions)
    )


def _grown(body: bytearray, chunk: bytes) -> None:
    body += chunk
    if len(body) > MAX_REQUEST_BYTES:
        raise ValueError(f"a request with a key may have {MAX_REQUEST_BYTES} bytes: it is kept, to be sent again")


def _raised(gave_up: GaveUp, last: _Attempt | None, key: str) -> httpx.Response:
    """The last answer, if that is what was given up on; else the error that its client knows how to tell."""
    if gave_up.response is not None and last is not None:
        return last.ended(key, gave_up.attempts, gave_up)
    error = gave_up.__context__
    if error is None:
        raise gave_up
    raise error from gave_up


class IdempotencyTransport(_Base, httpx.BaseTransport):
    """Around another transport, by default that of httpx2.

    POST and PATCH get a key once, unless they bring one, as the header `Idempotency-Key` or in their extensions; other
    methods pass unchanged, unless they have one. The time limits of an attempt are the request's own.
    """

    def __init__(
        self,
        wrapped: httpx.BaseTransport | None = None,
        *,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        methods: Iterable[str] = METHODS,
    ) -> None:
        _Base.__init__(self, retry, budget, methods)
        self._wrapped = wrapped or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One call, until there is an answer."""
        key = self._key(request)
        if key is None:
            return self._wrapped.handle_request(request)
        body = self._body(request)
        course, last = self._course(key), None

        def exchange(_attempt: int, _seconds: float) -> httpx.Response:
            nonlocal last
            last = None
            last = self._attempt(_again(request, body))
            return last.seen

        try:
            reply = repeat(exchange, course)
        except GaveUp as gave_up:
            return _raised(gave_up, last, key)
        assert last is not None  # noqa: S101
        return last.ended(key, reply.attempts)

    def _attempt(self, request: httpx.Request) -> _Attempt:
        raw = self._wrapped.handle_request(request)
        stream = raw.stream
        if _is_stream(raw) or not isinstance(stream, httpx.SyncByteStream):
            return _Attempt.of(raw, None)
        chunks, size, parts = list[bytes](), 0, iter(stream)
        try:
            for chunk in parts:
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raw.stream = _Rest(chunks, parts, stream)
                    return _Attempt.of(raw, None)
        except BaseException:
            stream.close()
            raise
        stream.close()
        return _Attempt.of(raw, b"".join(chunks))

    def _body(self, request: httpx.Request) -> bytes:
        body = bytearray()
        assert isinstance(request.stream, httpx.SyncByteStream)  # noqa: S101
        for chunk in request.stream:
            _grown(body, chunk)
        return bytes(body)

    def close(self) -> None:
        """Closes the transport inside."""
        self._wrapped.close()


class _Rest(httpx.SyncByteStream):
    """An answer that is too large to be kept: what was read of it, and what comes."""

    def __init__(self, chunks: list[bytes], parts: Iterator[bytes], stream: httpx.SyncByteStream) -> None:
        self._parts, self._stream = itertools.chain(chunks, parts), stream

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        self._stream.close()


class AsyncIdempotencyTransport(_Base, httpx.AsyncBaseTransport):
    """`IdempotencyTransport` for asyncio."""

    def __init__(
        self,
        wrapped: httpx.AsyncBaseTransport | None = None,
        *,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        methods: Iterable[str] = METHODS,
    ) -> None:
        _Base.__init__(self, retry, budget, methods)
        self._wrapped = wrapped or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As `IdempotencyTransport.handle_request`."""
        key = self._key(request)
        if key is None:
            return await self._wrapped.handle_async_request(request)
        body = await self._body(request)
        course, last = self._course(key), None

        async def exchange(_attempt: int, _seconds: float) -> httpx.Response:
            nonlocal last
            last = None
            last = await self._attempt(_again(request, body))
            return last.seen

        try:
            reply = await arepeat(exchange, course)
        except GaveUp as gave_up:
            return _raised(gave_up, last, key)
        assert last is not None  # noqa: S101
        return last.ended(key, reply.attempts)

    async def _attempt(self, request: httpx.Request) -> _Attempt:
        raw = await self._wrapped.handle_async_request(request)
        stream = raw.stream
        if _is_stream(raw) or not isinstance(stream, httpx.AsyncByteStream):
            return _Attempt.of(raw, None)
        chunks, size, parts = list[bytes](), 0, aiter(stream)
        try:
            async for chunk in parts:
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raw.stream = _AsyncRest(chunks, parts, stream)
                    return _Attempt.of(raw, None)
        except BaseException:
            await stream.aclose()
            raise
        await stream.aclose()
        return _Attempt.of(raw, b"".join(chunks))

    async def _body(self, request: httpx.Request) -> bytes:
        body = bytearray()
        assert isinstance(request.stream, httpx.AsyncByteStream)  # noqa: S101
        async for chunk in request.stream:
            _grown(body, chunk)
        return bytes(body)

    async def aclose(self) -> None:
        """Closes the transport inside."""
        await self._wrapped.aclose()


class _AsyncRest(httpx.AsyncByteStream):
    """As `_Rest`."""

    def __init__(self, chunks: list[bytes], parts: AsyncIterator[bytes], stream: httpx.AsyncByteStream) -> None:
        self._chunks, self._parts, self._stream = chunks, parts, stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        async for chunk in self._parts:
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
