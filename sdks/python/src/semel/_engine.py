"""The engine in this process instead of a sidecar: the same requests, the same answers, no socket.

A store belongs to the process that opened it. Before a fork it is closed, so that no thread of it runs then and no lock
is held; parent and child open it again with their next call. Calls that are under way meanwhile are sent again.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from ._send import Reply, arepeat, repeat
from .api import Api, AsyncApi, Base, content_of
from .errors import OpenError
from .retry import RetryBudget, RetryPolicy

if TYPE_CHECKING:
    from . import _native
    from ._native import StoreOptions

_MOST_OPENING = 10.0
"""How long a fork waits for a store that another thread is opening or closing."""

_CLOSING = 2.0
"""How long closing waits for settlements of callers that are gone."""

_SQLITE_THREADS = "sqlx-sqlite"
"""How the names of the threads begin that have SQLite's connections, on Linux."""


@dataclass(frozen=True)
class LocalResponse:
    """An answer of the engine in this process."""

    status_code: int
    headers: dict[str, str]
    content: bytes


class EmbeddedStore:
    """A store that is opened in this process, and again after a fork."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        self.url, self._options = url, options
        self._lock = threading.Lock()
        self._native: _native.Store | None = None
        self._kept: _native.Kept | None = None
        self._process = 0
        self._closed = False
        self._held = False
        _STORES.add(self)

    def connect(self) -> _native.Store:
        """The store, opened if it isn't."""
        found = self.opened()
        if found is not None:
            return found
        with self._lock:
            if self._closed:
                raise RuntimeError("the store was closed")
            found = self.opened()
            if found is None:
                found = self._native = _open(self.url, self._options, self._kept)
                self._process, self._kept = os.getpid(), None
            return found

    def opened(self) -> _native.Store | None:
        """The store, if this process has opened it."""
        return self._native if self._process == os.getpid() else None

    def call(self, method: str, path: str, body: bytes | None, seconds: float) -> LocalResponse:
        """One attempt of a program with threads."""
        try:
            found = self.connect().call(method, path, body, seconds)
        except (OpenError, ConnectionAbortedError) as error:
            raise self._told(error) from None
        if found is None:
            raise httpx.ReadTimeout("the store took too long")
        return LocalResponse(*found)

    async def acall(self, method: str, path: str, body: bytes | None, seconds: float) -> LocalResponse:
        """The same for asyncio: the event loop goes on meanwhile."""
        loop = asyncio.get_running_loop()
        try:
            native = self.opened()
            if native is None:
                native = await loop.run_in_executor(None, self.connect)
            ends = _ends_of(loop)
            if ends is None:
                return await loop.run_in_executor(None, self.call, method, path, body, seconds)
            how, found = await ends.ask(loop, native, method, path, body, seconds)
        except (OpenError, ConnectionAbortedError) as error:
            raise self._told(error) from None
        if found is None:
            raise httpx.ReadTimeout("the store took too long") if how == "timed_out" else self._told(None)
        return LocalResponse(*found)

    def _told(self, error: Exception | None) -> Exception:
        if self._closed:
            return RuntimeError("the store was closed")
        if isinstance(error, OpenError):
            return httpx.ConnectError(str(error))
        return httpx.ReadError("the process forked meanwhile")

    def close(self) -> None:
        """Ends what is under way, and closes the connections. It stays closed."""
        self._closed = True
        with self._lock:
            native, self._native, self._kept = self._native, None, None
        if native is not None and self._process == os.getpid():
            native.close(_CLOSING)

    def suspend(self) -> None:
        """Before a fork: closes it, and keeps others from opening it until `resume`."""
        self._held = self._lock.acquire(timeout=_MOST_OPENING)
        if not self._held:
            # What another thread waits for is another's answer. Its store is nothing that a child would touch.
            return
        native = self.opened()
        if native is not None:
            self._native, self._kept = None, native.keep()
            # What is cut short here is sent again.
            native.close(0.0)

    def resume(self) -> None:
        """After a fork, in the parent: others may open it again."""
        if self._held:
            self._held = False
            self._lock.release()

    def begin_anew(self) -> None:
        """After a fork, in the child: the threads that held or awaited the lock are not there."""
        self._held, self._lock = False, threading.Lock()


_STORES: weakref.WeakSet[EmbeddedStore] = weakref.WeakSet()
_suspended: list[EmbeddedStore] = []


def _wait_for_sqlite() -> None:
    """Waits until SQLite's threads have closed their connections: a child would believe in the locks that it copied."""
    tasks = Path("/proc/self/task")
    until = time.monotonic() + _MOST_OPENING
    while tasks.is_dir() and time.monotonic() < until:
        names = [name for name in map(_name_of, tasks.iterdir()) if name.startswith(_SQLITE_THREADS)]
        if not names:
            return
        time.sleep(0.001)


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:
        return ""


def _before_fork() -> None:
    _suspended.extend(_STORES)
    for store in _suspended:
        store.suspend()
    if any("sqlite:" in store.url for store in _suspended):
        _wait_for_sqlite()


def _after_in_parent() -> None:
    for store in _suspended:
        store.resume()
    _suspended.clear()


def _after_in_child() -> None:
    _suspended.clear()
    for store in list(_STORES):
        store.begin_anew()


@atexit.register
def _at_exit() -> None:
    for store in list(_STORES):
        store.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def _open(url: str, options: StoreOptions, kept: _native.Kept | None) -> _native.Store:
    try:
        from . import _native  # noqa: PLC0415
    except ImportError as error:
        way = "install a wheel for this platform, or start `semel serve` and give its URL instead"
        raise OpenError(f"this installation has no engine of its own, so it opens no store: {way}") from error
    try:
        return _native.Store(url, options, kept)
    except ValueError as error:
        raise OpenError(str(error)) from None


class _Ends:
    """The calls of one event loop. It must not refer to the loop, which would then never be freed."""

    def __init__(self, queue: _native.Queue) -> None:
        self._queue = queue
        self._tickets = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[str, _native.Reply | None]]] = {}

    async def ask(
        self,
        loop: asyncio.AbstractEventLoop,
        native: _native.Store,
        method: str,
        path: str,
        body: bytes | None,
        seconds: float,
    ) -> tuple[str, _native.Reply | None]:
        ticket = next(self._tickets)
        future: asyncio.Future[tuple[str, _native.Reply | None]] = loop.create_future()
        call = native.start(self._queue, ticket, method, path, body, seconds)
        self._waiting[ticket] = future
        try:
            return await future
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            self._waiting.pop(ticket, None)

    def drain(self) -> None:
        for ticket, how, reply in self._queue.drain():
            future = self._waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result((how, reply))


_LOOPS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Ends | None] = weakref.WeakKeyDictionary()


def _ends_of(loop: asyncio.AbstractEventLoop) -> _Ends | None:
    """Where calls of this loop end, or nothing where it watches no file descriptors."""
    if loop not in _LOOPS:
        from . import _native  # noqa: PLC0415

        try:
            ends = _Ends(_native.Queue())
            loop.add_reader(ends._queue.fileno(), ends.drain)
            _LOOPS[loop] = ends
        except (AttributeError, NotImplementedError):
            _LOOPS[loop] = None
    return _LOOPS[loop]


class StoreApi(Api):
    """`Api` on a store in this process."""

    def __init__(self, store: EmbeddedStore, retry: RetryPolicy | None, budget: RetryBudget | None) -> None:
        Base.__init__(self, "", None, retry, budget, has_own_way=True)
        self.store = store

    def send(self, method: str, path: str, body: Any = None, *, within: float | None = None) -> Reply[Any]:
        """One call, until there is an answer."""

        def exchange(attempt: int, seconds: float) -> LocalResponse:
            return self.store.call(method, path, None if body is None else content_of(path, body, attempt), seconds)

        return repeat(exchange, self.course(within))

    def connect(self) -> None:
        """Opens the store, if it isn't. `OpenError` where it can't be."""
        self.store.connect()

    def close(self) -> None:
        """Closes the store."""
        self.store.close()


class AsyncStoreApi(AsyncApi):
    """`AsyncApi` on a store in this process."""

    def __init__(self, store: EmbeddedStore, retry: RetryPolicy | None, budget: RetryBudget | None) -> None:
        Base.__init__(self, "", None, retry, budget, has_own_way=True)
        self.store = store

    async def send(self, method: str, path: str, body: Any = None, *, within: float | None = None) -> Reply[Any]:
        """As `StoreApi.send`."""

        async def exchange(attempt: int, seconds: float) -> LocalResponse:
            content = None if body is None else content_of(path, body, attempt)
            return await self.store.acall(method, path, content, seconds)

        return await arepeat(exchange, self.course(within))

    async def connect(self) -> None:
        """As `StoreApi.connect`."""
        await asyncio.get_running_loop().run_in_executor(None, self.store.connect)

    async def aclose(self) -> None:
        """Closes the store."""
        await asyncio.get_running_loop().run_in_executor(None, self.store.close)
