"""A client that asks until there is an answer, always with the key it began with."""

from __future__ import annotations

import asyncio
import json as json_module
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

import httpx2 as httpx

from ._answer import Answer, answer_of
from ._send import Build, asend, send
from .errors import SemelError
from .keys import check_key, new_key
from .outbox import Entry, Outbox, StoredRequest
from .retry import Course, RetryBudget, RetryPolicy

HEADER = "Idempotency-Key"


class Options(TypedDict, total=False):
    """What a request may carry besides its method and URL."""

    json: Any
    content: bytes | str
    headers: Mapping[str, str]
    content_type: str


def _body(options: Options) -> tuple[bytes, str | None]:
    if "json" in options:
        if "content" in options:
            raise ValueError("either json or content")
        body = json_module.dumps(options["json"], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return body.encode(), options.get("content_type", "application/json")
    content = options.get("content", b"")
    return (content.encode() if isinstance(content, str) else content), options.get("content_type")


def _stored(method: str, url: str, options: Options) -> StoredRequest:
    body, content_type = _body(options)
    return StoredRequest(method.upper(), url, content_type, body)


def _kept(base: httpx.URL, request: StoredRequest) -> StoredRequest:
    """As it is kept: whoever finishes it may have another base, or none. Credentials in the base stay out of it."""
    given = httpx.URL(request.url)
    if given.is_absolute_url or base.is_relative_url:
        return request
    joined = base.copy_with(userinfo=b"", raw_path=base.raw_path + given.raw_path.lstrip(b"/"))
    return replace(request, url=str(joined))


def _sent_to(base: httpx.URL, url: str) -> httpx.URL:
    """Where a request goes: with the base's own credentials, which are never kept, where it goes to the base."""
    to = httpx.URL(url)
    same = (to.scheme, to.host, to.port) == (base.scheme, base.host, base.port)
    return to.copy_with(userinfo=base.userinfo) if same and base.userinfo and not to.userinfo else to


class _Base:
    """What both kinds of client have in common."""

    def __init__(self, retry: RetryPolicy | None, budget: RetryBudget | None, outbox: Outbox | None) -> None:
        self.retry = retry or RetryPolicy()
        self.budget = budget or RetryBudget()
        self._outbox = outbox

    @property
    def outbox(self) -> Outbox:
        """The outbox that was given."""
        if self._outbox is None:
            raise SemelError("this client has no outbox; give it one: Client(…, outbox=Outbox('calls'))")
        return self._outbox

    def _course(self, key: str, *, unknown: bool) -> Course:
        return Course(self.retry, self.budget, key=key, unknown=unknown)


def _build(http: httpx.Client | httpx.AsyncClient, key: str, request: StoredRequest, more: Mapping[str, str]) -> Build:
    headers = {**more, HEADER: key}
    if request.content_type is not None:
        headers["Content-Type"] = request.content_type
    url = _sent_to(http.base_url, request.url)
    return lambda _attempt: http.build_request(request.method, url, content=request.body, headers=headers)


class Client(_Base):
    """For programs with threads; one may be shared by all of them.

    `http` is an `httpx.Client` of your own, for certificates, proxies and the like; its timeouts are not used.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        outbox: Outbox | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(retry, budget, outbox)
        self._http = http or httpx.Client(base_url=base_url, headers=headers)

    def request(self, method: str, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """Asks until there is an answer. The key is made here, once, unless the operation has one of its own.

        Raises `Conflict` and `InDoubt`, which are never retried; other `ProblemError`s where Semel refused; `GaveUp`.
        """
        key = new_key() if key is None else check_key(key)
        return self._send(key, _stored(method, url, options), options.get("headers", {}))

    def post(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return self.request("POST", url, key=key, **options)

    def patch(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with PATCH."""
        return self.request("PATCH", url, key=key, **options)

    @contextmanager
    def call(self, name: str) -> Iterator[Call]:
        """A call whose key is on disk before anything is sent.

        Left without an error, the call is done and forgotten: keep the answer inside the block. Left with one, or by
        a crash, the next process that opens the same name asks with the same key.
        """
        yield from self._within(self.outbox.begin(name))

    def pending(self) -> Iterator[Call]:
        """Calls that nobody has finished; send them again with `with call: call.send()`."""
        for entry in self.outbox.pending():
            yield Call(self, entry)

    def _within(self, entry: Entry) -> Iterator[Call]:
        with Call(self, entry) as call:
            yield call

    def _send(
        self, key: str, request: StoredRequest, headers: Mapping[str, str], *, maybe_sent: bool = False
    ) -> Answer:
        course = self._course(key, unknown=maybe_sent)
        reply = send(self._http, _build(self._http, key, request, headers), course)
        return answer_of(reply.response, key, reply.attempts)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Call:
    """One call of an outbox."""

    def __init__(self, client: Client, entry: Entry) -> None:
        self._client, self._entry = client, entry

    @property
    def name(self) -> str:
        """Its name."""
        return self._entry.name

    @property
    def key(self) -> str:
        """Its key, the same in every process."""
        return self._entry.key

    def request(self, method: str, url: str, **options: Unpack[Options]) -> Answer:
        """Keeps the request, then asks until there is an answer."""
        given = _stored(method, url, options)
        kept = _kept(self._client._http.base_url, given)
        self._entry = self._client.outbox.attach(self._entry, kept, formerly=given)
        return self.send(**({"headers": options["headers"]} if "headers" in options else {}))

    def post(self, url: str, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return self.request("POST", url, **options)

    def send(self, headers: Mapping[str, str] | None = None) -> Answer:
        """Sends the request that was kept."""
        entry = self._entry
        if entry.request is None:
            raise SemelError("this call was begun, and never sent anything; make its request anew, or forget it")
        self._entry = replace(entry, maybe_sent=True)
        return self._client._send(entry.key, entry.request, headers or {}, maybe_sent=entry.maybe_sent)

    @property
    def sent(self) -> bool:
        """Whether there is a request to send again."""
        return self._entry.request is not None

    def forget(self) -> None:
        """Takes it out of the outbox, answered or not, unless another has gone on with it since."""
        self._client.outbox.forget(self._entry)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.forget()


class AsyncClient(_Base):
    """`Client` for asyncio."""

    def __init__(
        self,
        base_url: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        outbox: Outbox | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(retry, budget, outbox)
        self._http = http or httpx.AsyncClient(base_url=base_url, headers=headers)

    async def request(self, method: str, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """As `Client.request`."""
        key = new_key() if key is None else check_key(key)
        return await self._send(key, _stored(method, url, options), options.get("headers", {}))

    async def post(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return await self.request("POST", url, key=key, **options)

    async def patch(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with PATCH."""
        return await self.request("PATCH", url, key=key, **options)

    @asynccontextmanager
    async def call(self, name: str) -> AsyncIterator[AsyncCall]:
        """As `Client.call`."""
        entry = await asyncio.to_thread(self.outbox.begin, name)
        async with AsyncCall(self, entry) as call:
            yield call

    async def pending(self) -> list[AsyncCall]:
        """As `Client.pending`."""
        entries = await asyncio.to_thread(lambda: list(self.outbox.pending()))
        return [AsyncCall(self, entry) for entry in entries]

    async def _send(
        self, key: str, request: StoredRequest, headers: Mapping[str, str], *, maybe_sent: bool = False
    ) -> Answer:
        course = self._course(key, unknown=maybe_sent)
        reply = await asend(self._http, _build(self._http, key, request, headers), course)
        return answer_of(reply.response, key, reply.attempts)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncCall:
    """`Call` for asyncio. The disk is asked in a thread."""

    def __init__(self, client: AsyncClient, entry: Entry) -> None:
        self._client, self._entry = client, entry

    @property
    def name(self) -> str:
        """Its name."""
        return self._entry.name

    @property
    def key(self) -> str:
        """Its key, the same in every process."""
        return self._entry.key

    @property
    def sent(self) -> bool:
        """Whether there is a request to send again."""
        return self._entry.request is not None

    async def request(self, method: str, url: str, **options: Unpack[Options]) -> Answer:
        """As `Call.request`."""
        given = _stored(method, url, options)
        kept = _kept(self._client._http.base_url, given)
        self._entry = await asyncio.to_thread(self._client.outbox.attach, self._entry, kept, formerly=given)
        return await self.send(options.get("headers"))

    async def post(self, url: str, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return await self.request("POST", url, **options)

    async def send(self, headers: Mapping[str, str] | None = None) -> Answer:
        """As `Call.send`."""
        entry = self._entry
        if entry.request is None:
            raise SemelError("this call was begun, and never sent anything; make its request anew, or forget it")
        self._entry = replace(entry, maybe_sent=True)
        return await self._client._send(entry.key, entry.request, headers or {}, maybe_sent=entry.maybe_sent)

    async def forget(self) -> None:
        """Takes it out of the outbox, answered or not, unless another has gone on with it since."""
        await asyncio.to_thread(self._client.outbox.forget, self._entry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is None:
            await self.forget()
