"""Answers of WSGI applications: gathered until they are whole, or passed on as they come."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx2 as httpx

from . import _http
from ._claims import MAX_BODY_BYTES
from ._http import Headers, Plain
from ._lease import running_under
from .api_types import Outcome
from .errors import SemelError
from .worker import Lease

StartResponse = Callable[..., Any]


class Gathered:
    """One answer. What is too large, takes too long or is an event stream is passed on, and isn't kept."""

    def __init__(
        self, lease: Lease, start_response: StartResponse, seconds: float, keep: frozenset[str], anonymous: bool
    ) -> None:
        self._lease, self._start_response, self._keep, self._anonymous = lease, start_response, keep, anonymous
        self._until = time.monotonic() + seconds
        self._status: str | None = None
        self._headers: Headers = []
        self._said: str | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._parts: Iterable[bytes] = ()
        self._left: Iterator[bytes] = iter(())
        self._is_stream = False
        self._sent = False
        self._settled = False
        self.passing = False

    def start(self, status: str, headers: Headers, exc_info: Any = None) -> Callable[[bytes], None]:
        """What the application calls as `start_response`."""
        if self._sent and exc_info:
            raise exc_info[1]
        self._status = status
        said = [value for name, value in headers if name.lower() == _http.OUTCOME_HEADER]
        self._said = said[0].strip().lower() if said else None
        self._headers = [(name, value) for name, value in headers if name.lower() != _http.OUTCOME_HEADER]
        media = next((value for name, value in headers if name.lower() == "content-type"), "")
        self._is_stream = media.lower().startswith("text/event-stream")
        return self._add

    def _add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)

    def take(self, parts: Iterable[bytes]) -> None:
        """Reads the answer to its end, unless it is to be passed on."""
        self._parts, self._left = parts, iter(parts)
        try:
            for chunk in self._left:
                self._add(chunk)
                if self._is_stream or self._size > MAX_BODY_BYTES or time.monotonic() > self._until:
                    self.passing = True
                    return
            if self._status is None:
                raise RuntimeError("the application answered nothing")
        finally:
            if not self.passing:
                self._close()

    def _close(self) -> None:
        close = getattr(self._parts, "close", None)
        if close is not None:
            close()

    def _outcome(self) -> Outcome:
        code, location = int((self._status or "500")[:3]), _http.location_of(self._headers)
        return _http.outcome_of_status(code, self._said, location=location, anonymous=self._anonymous)

    def settle(self) -> Plain | None:
        """Records what became of it; gives what to say instead where that failed."""
        self._settled = True
        outcome, kept = self._outcome(), None
        if outcome in ("complete", "fail"):
            body = None if self.passing else b"".join(self._chunks)
            kept = _http.kept_answer(int((self._status or "500")[:3]), self._headers, body, self._size, self._keep)
        try:
            self._lease.settle(outcome, kept)
        except (SemelError, httpx.HTTPError) as error:
            return _http.unsettled(error) if kept is not None else None
        return None

    def settle_quietly(self, *, whole: bool) -> None:
        """Once. Its caller has the answer already, or an error of the application's, so there is nobody to tell."""
        if self._settled:
            return
        if whole:
            self.settle()
            return
        self._settled = True
        with contextlib.suppress(SemelError, httpx.HTTPError):
            self._lease.settle("retry", None)

    def released(self) -> list[bytes]:
        """The answer, now that it is recorded."""
        self._send_head()
        return self._chunks

    def _send_head(self) -> None:
        self._sent = True
        self._start_response(self._status, self._headers, None)

    def passed_on(self, held: contextlib.ExitStack) -> Iterable[bytes]:
        """The answer as it comes: what became of it is known at its end."""
        self._send_head()
        return _Rest(self, held)

    def next(self) -> bytes:
        """The next part of an answer that is passed on."""
        if self._chunks:
            return self._chunks.pop(0)
        with running_under(self._lease):
            chunk = next(self._left)
        self._size += len(chunk)
        return chunk

    def end(self, held: contextlib.ExitStack, *, whole: bool) -> None:
        """At its end, when it breaks off, or when its client has left."""
        with held:
            self.settle_quietly(whole=whole)

    def close(self, held: contextlib.ExitStack) -> None:
        """The server calls it at the end, whatever that was."""
        try:
            self._close()
        finally:
            self.end(held, whole=False)


class _Rest:
    def __init__(self, gathered: Gathered, held: contextlib.ExitStack) -> None:
        self._gathered, self._held = gathered, held

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return self._gathered.next()
        except StopIteration:
            self._gathered.end(self._held, whole=True)
            raise
        except BaseException:
            self._gathered.end(self._held, whole=False)
            raise

    def close(self) -> None:
        self._gathered.close(self._held)
