"""Streaming answers of Django: passed on as they come, and not kept. What became of them is known at their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx2 as httpx
from django.http import StreamingHttpResponse

from .api_types import AnswerInput, Outcome
from .errors import SemelError

Settle = Callable[[Outcome, AnswerInput | None], Any]
Leave = Callable[[], Any]


class Stream:
    """One answer. `settle` ends its lease, `leave` its renewal; both are coroutine functions for asyncio."""

    def __init__(
        self,
        response: StreamingHttpResponse,
        outcome: Outcome,
        kept: AnswerInput | None,
        settle: Settle,
        leave: Leave,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._parts: Any = response.streaming_content
        self._outcome, self._kept = outcome, kept
        self._settle, self._leave, self._loop = settle, leave, loop
        self._ended = False
        self._ending: set[asyncio.Task[None]] = set()
        response.streaming_content = _AsyncParts(self) if response.is_async else _Parts(self)

    def _asked(self, whole: bool) -> tuple[Outcome, AnswerInput | None] | None:
        """What to settle: once, at the end, when it breaks off, or when its client has left."""
        if self._ended:
            return None
        self._ended = True
        return (self._outcome, self._kept) if whole else ("retry", None)

    def end(self, *, whole: bool) -> None:
        """In a thread. Its caller has the answer already, so there is nobody to tell of an error."""
        asked = self._asked(whole)
        if asked is None:
            return
        if self._loop is not None:
            self._end_there(self._loop, self._end(asked))
            return
        try:
            with contextlib.suppress(SemelError, httpx.HTTPError):
                self._settle(*asked)
        finally:
            self._leave()

    async def aend(self, *, whole: bool) -> None:
        """On the event loop."""
        if self._loop is None:
            await asyncio.to_thread(self.end, whole=whole)
            return
        asked = self._asked(whole)
        if asked is not None:
            await self._end(asked)

    async def _end(self, asked: tuple[Outcome, AnswerInput | None]) -> None:
        try:
            with contextlib.suppress(SemelError, httpx.HTTPError):
                await self._settle(*asked)
        finally:
            await self._leave()

    def _end_there(self, loop: asyncio.AbstractEventLoop, ending: Any) -> None:
        """Django closes an answer from a thread of its own; a program may do it on the loop, which can't wait."""
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is loop:
            task = loop.create_task(ending)
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        else:
            asyncio.run_coroutine_threadsafe(ending, loop).result()

    def parts(self) -> Iterator[bytes]:
        """As the view made them."""
        return iter(self._parts)

    def aparts(self) -> AsyncIterator[bytes]:
        """As the view made them."""
        parts: AsyncIterator[bytes] = self._parts.__aiter__()
        return parts


class _Parts:
    def __init__(self, stream: Stream) -> None:
        self._stream, self._parts = stream, stream.parts()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._parts)
        except StopIteration:
            self._stream.end(whole=True)
            raise
        except BaseException:
            self._stream.end(whole=False)
            raise

    def close(self) -> None:
        """Django calls it at the end, whatever that was."""
        self._stream.end(whole=False)


class _AsyncParts:
    def __init__(self, stream: Stream) -> None:
        self._stream, self._parts = stream, stream.aparts()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        part: Awaitable[bytes] = self._parts.__anext__()
        try:
            return await part
        except StopAsyncIteration:
            await self._stream.aend(whole=True)
            raise
        except BaseException:
            await self._stream.aend(whole=False)
            raise

    def close(self) -> None:
        """As `_Parts.close`."""
        self._stream.end(whole=False)
