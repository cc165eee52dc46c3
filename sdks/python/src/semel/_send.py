"""Sends until there is an answer: the only two loops of this package that ask again, one for each kind of caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx2 as httpx

from .retry import Course, Received

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""The largest answer that is read."""

Build = Callable[[int], httpx.Request]
"""Makes the request of an attempt, counted from 1. Its key is the same every time."""


R = TypeVar("R", bound=Received)


@dataclass(frozen=True)
class Reply(Generic[R]):
    """The answer that counts, and when its attempt was sent, on the monotonic clock."""

    response: R
    sent_at: float
    attempts: int
    unanswered_at: float | None
    """When the first attempt was sent that may have arrived and got no answer, where there was one."""


def _reply(response: R, course: Course) -> Reply[R]:
    return Reply(response, course.sent_at, course.attempts, course.unanswered_at)


class AnswerTooLarge(httpx.TransportError):
    """Past `MAX_ANSWER_BYTES`."""


def _timed(request: httpx.Request, seconds: float) -> httpx.Request:
    request.extensions = {**request.extensions, "timeout": httpx.Timeout(seconds).as_dict()}
    return request


class _Gathered:
    """A body that is read piece by piece, so that its size and its time are bounded."""

    def __init__(self, response: httpx.Response, until: float) -> None:
        self._response, self._until = response, until
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            raise AnswerTooLarge(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        if time.monotonic() > self._until:
            raise httpx.ReadTimeout("the answer took too long", request=self._response.request)
        self._chunks.append(chunk)

    def whole(self) -> httpx.Response:
        # The body is decoded by now; headers that described its coded form would be wrong.
        gone = ("content-encoding", "content-length", "transfer-encoding")
        headers = [(name, value) for name, value in self._response.headers.multi_items() if name not in gone]
        return httpx.Response(
            self._response.status_code,
            headers=headers,
            content=b"".join(self._chunks),
            request=self._response.request,
        )


def repeat(
    exchange: Callable[[int, float], R], course: Course, sleep: Callable[[float], object] = time.sleep
) -> Reply[R]:
    """One call of a program with threads. `exchange` makes one attempt: its number, and the seconds that it has."""
    while True:
        seconds = course.begin()
        pause: float | None
        try:
            response = exchange(course.attempts, seconds)
        except AnswerTooLarge:
            raise
        except (httpx.TransportError, httpx.DecodingError) as error:
            pause = course.after_error(error)
        else:
            pause = course.after_response(response)
            if pause is None:
                return _reply(response, course)
        sleep(pause)


async def arepeat(exchange: Callable[[int, float], Awaitable[R]], course: Course) -> Reply[R]:
    """The same for asyncio."""
    while True:
        seconds = course.begin()
        pause: float | None
        try:
            response = await exchange(course.attempts, seconds)
        except AnswerTooLarge:
            raise
        except (TimeoutError, httpx.TransportError, httpx.DecodingError) as error:
            pause = course.after_error(error)
        else:
            pause = course.after_response(response)
            if pause is None:
                return _reply(response, course)
        await asyncio.sleep(pause)


Auth = httpx.Auth | tuple[str, str]


def _options(auth: Auth | None) -> dict[str, Any]:
    return {} if auth is None else {"auth": auth}


def send(
    http: httpx.Client,
    build: Build,
    course: Course,
    sleep: Callable[[float], object] = time.sleep,
    *,
    auth: Auth | None = None,
) -> Reply[httpx.Response]:
    """One call over HTTP of a program with threads."""

    def exchange(attempt: int, seconds: float) -> httpx.Response:
        until = time.monotonic() + seconds
        raw = http.send(_timed(build(attempt), seconds), stream=True, **_options(auth))
        try:
            gathered = _Gathered(raw, until)
            for chunk in raw.iter_bytes():
                gathered.add(chunk)
        finally:
            raw.close()
        return gathered.whole()

    return repeat(exchange, course, sleep)


async def asend(
    http: httpx.AsyncClient, build: Build, course: Course, *, auth: Auth | None = None
) -> Reply[httpx.Response]:
    """The same for asyncio."""

    async def exchange(attempt: int, seconds: float) -> httpx.Response:
        until = time.monotonic() + seconds
        # Not `wait_for`: before Python 3.12 it loses a cancellation that comes with the answer.
        async with asyncio.timeout(seconds):
            return await _attempt(http, _timed(build(attempt), seconds), until, auth)

    return await arepeat(exchange, course)


async def _attempt(http: httpx.AsyncClient, request: httpx.Request, until: float, auth: Auth | None) -> httpx.Response:
    raw = await http.send(request, stream=True, **_options(auth))
    try:
        gathered = _Gathered(raw, until)
        async for chunk in raw.aiter_bytes():
            gathered.add(chunk)
    finally:
        await raw.aclose()
    return gathered.whole()
