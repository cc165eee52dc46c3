"""A client that asks until there is an answer, always with the key it began with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self, Unpack

import httpx2 as httpx

from ._answer import Answer, answer_of
from ._lease import naming
from ._requests import More, Options, base_of, build_for, kept, key_for, stored
from ._send import asend, send
from .errors import SemelError
from .outbox import Entry, Outbox, StoredRequest
from .retry import Course, RetryBudget, RetryPolicy


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

    def _course(self, key: str, more: More, *, unknown: bool) -> Course:
        retry = self.retry if more.timeout is None else replace(self.retry, attempt_timeout=more.timeout)
        return Course(retry, self.budget, key=key or None, unknown=unknown)


class Client(_Base):
    """For programs with threads; one may be shared by all of them.

    `http` is an `httpx.Client` of your own, for certificates, proxies and the like; its timeouts are not used. Requests
    go under `base_url` with `headers`; without a `base_url`, under that of `http`.
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
        self._http = http or httpx.Client()
        self._base, self._headers = base_of(base_url, self._http), dict(headers or {})

    def request(self, method: str, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """Asks until there is an answer. The key is made here, once, unless the operation has one of its own; GET, HEAD
        and OPTIONS have none.

        Raises `Conflict` and `InDoubt`, which are never retried; other `ProblemError`s where Semel refused; `GaveUp`.
        """
        return self._send(key_for(method, key), stored(method, url, options), More.of(options))

    def post(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return self.request("POST", url, key=key, **options)

    def patch(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with PATCH."""
        return self.request("PATCH", url, key=key, **options)

    def put(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with PUT."""
        return self.request("PUT", url, key=key, **options)

    def delete(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with DELETE."""
        return self.request("DELETE", url, key=key, **options)

    def get(self, url: str, **options: Unpack[Options]) -> Answer:
        """`request` with GET, without a key."""
        return self.request("GET", url, **options)

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

    def _send(self, key: str, request: StoredRequest, more: More, *, maybe_sent: bool = False) -> Answer:
        build = build_for(self._http, self._base, key, request, self._headers, more)
        course = self._course(key, more, unknown=maybe_sent)
        with naming(key):
            reply = send(self._http, build, course, auth=more.auth)
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
        given = stored(method, url, options)
        whole = kept(self._client._base, given)
        self._entry = self._client.outbox.attach(self._entry, whole, formerly=given)
        return self._sent(More.of(options))

    def post(self, url: str, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return self.request("POST", url, **options)

    def send(self, headers: Mapping[str, str] | None = None) -> Answer:
        """Sends the request that was kept."""
        return self._sent(More(headers or {}))

    def _sent(self, more: More) -> Answer:
        entry = self._entry
        if entry.request is None:
            raise SemelError("this call was begun, and never sent anything; make its request anew, or forget it")
        self._entry = replace(entry, maybe_sent=True)
        return self._client._send(entry.key, entry.request, more, maybe_sent=entry.maybe_sent)

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
        self._http = http or httpx.AsyncClient()
        self._base, self._headers = base_of(base_url, self._http), dict(headers or {})

    async def request(self, method: str, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """As `Client.request`."""
        return await self._send(key_for(method, key), stored(method, url, options), More.of(options))

    async def post(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return await self.request("POST", url, key=key, **options)

    async def patch(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with PATCH."""
        return await self.request("PATCH", url, key=key, **options)

    async def put(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with PUT."""
        return await self.request("PUT", url, key=key, **options)

    async def delete(self, url: str, *, key: str | None = None, **options: Unpack[Options]) -> Answer:
        """`request` with DELETE."""
        return await self.request("DELETE", url, key=key, **options)

    async def get(self, url: str, **options: Unpack[Options]) -> Answer:
        """`request` with GET, without a key."""
        return await self.request("GET", url, **options)

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

    async def _send(self, key: str, request: StoredRequest, more: More, *, maybe_sent: bool = False) -> Answer:
        build = build_for(self._http, self._base, key, request, self._headers, more)
        course = self._course(key, more, unknown=maybe_sent)
        with naming(key):
            reply = await asend(self._http, build, course, auth=more.auth)
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
        given = stored(method, url, options)
        whole = kept(self._client._base, given)
        self._entry = await asyncio.to_thread(self._client.outbox.attach, self._entry, whole, formerly=given)
        return await self._sent(More.of(options))

    async def post(self, url: str, **options: Unpack[Options]) -> Answer:
        """`request` with POST."""
        return await self.request("POST", url, **options)

    async def send(self, headers: Mapping[str, str] | None = None) -> Answer:
        """As `Call.send`."""
        return await self._sent(More(headers or {}))

    async def _sent(self, more: More) -> Answer:
        entry = self._entry
        if entry.request is None:
            raise SemelError("this call was begun, and never sent anything; make its request anew, or forget it")
        self._entry = replace(entry, maybe_sent=True)
        return await self._client._send(entry.key, entry.request, more, maybe_sent=entry.maybe_sent)

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
