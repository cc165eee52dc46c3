"""Django middleware: requests with a key run once.

Put `semel.django.IdempotencyMiddleware` after the authentication middleware, and say where the sidecar is:

    SEMEL = {"URL": "http://127.0.0.1:8080/_semel", "TOKEN": …}

Keys belong to the authenticated user, where there is one; else the credentials count as payload.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2 as httpx
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from . import _http
from ._django_settings import Configured, configured
from ._django_streams import Stream
from ._door import Request
from ._http import Plain
from ._lease import running_under
from .api_types import AnswerInput, ClaimRequest, Outcome
from .aworker import AsyncLease, AsyncSemel, uncut
from .errors import KeyInvalid, PayloadInvalid, SemelError
from .worker import Lease, Semel

GetResponse = Callable[[HttpRequest], Any]
Asked = tuple[ClaimRequest, bool]
"""A claim, and whether nothing says by whom it is made."""


class IdempotencyMiddleware:
    """For views of both kinds: under WSGI in the thread of the request, under ASGI on the event loop.

    An asynchronous view whose client has left runs to its end.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        # Settings that can't be are told when the server starts.
        configured()
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """One request."""
        return self._acall(request) if self._is_async else self._call(request)

    def _call(self, request: HttpRequest) -> HttpResponseBase:
        given = configured()
        try:
            semel = given.semel()
            asked = _asked(given, semel, request)
            if asked is None:
                return self._unprotected(request)
            view, lease = semel.admit(asked[0])
        except (KeyInvalid, PayloadInvalid, SemelError, httpx.HTTPError) as error:
            return _response(_http.of_error(error))
        if view["status"] == "unprotected":
            return self._unprotected(request)
        if lease is None:
            return _response(_http.replayed(view))
        with contextlib.ExitStack() as held:
            held.enter_context(lease)
            with running_under(lease):
                response: HttpResponseBase = self._get_response(request)
            return _settled(given, response, lease, held, asked[1])

    def _unprotected(self, request: HttpRequest) -> HttpResponseBase:
        with running_under(None):
            response: HttpResponseBase = self._get_response(request)
        return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        given = configured()
        try:
            semel = given.async_semel()
            asked = _asked(given, semel, request)
            if asked is None:
                return await self._aunprotected(request)
            view, lease = await semel.admit(asked[0])
        except (KeyInvalid, PayloadInvalid, SemelError, httpx.HTTPError) as error:
            return _response(_http.of_error(error))
        if view["status"] == "unprotected":
            return await self._aunprotected(request)
        if lease is None:
            return _response(_http.replayed(view))
        return await uncut(self._aeffect(given, request, lease, asked[1]))

    async def _aunprotected(self, request: HttpRequest) -> HttpResponseBase:
        with running_under(None):
            response: HttpResponseBase = await self._get_response(request)
        return response

    async def _aeffect(
        self, given: Configured, request: HttpRequest, lease: AsyncLease, anonymous: bool
    ) -> HttpResponseBase:
        async with contextlib.AsyncExitStack() as held:
            await held.enter_async_context(lease)
            with running_under(lease):
                response: HttpResponseBase = await self._get_response(request)
            outcome, kept = _outcome(given, response, anonymous)
            if isinstance(response, StreamingHttpResponse):
                leave = held.pop_all().aclose
                Stream(response, outcome, kept, lease.settle, leave, asyncio.get_running_loop())
                return response
            return await _asettle(response, lease.settle, outcome, kept)


def _asked(given: Configured, semel: Semel | AsyncSemel, request: HttpRequest) -> Asked | None:
    """What is asked for, or nothing where the request passes."""
    headers = list(request.headers.items())
    method = request.method or ""
    key = given.door.key(method, headers)
    if key is None:
        return None
    query, certificate = request.META.get("QUERY_STRING", ""), request.META.get("SSL_CLIENT_CERT")
    read = Request(method, request.path, _path(request), query, headers, request.body, certificate)
    return given.door.claim(semel, read, key, scope=given.scope, principal=_principal(given, request))


def _principal(given: Configured, request: HttpRequest) -> str | None:
    if given.principal is not None:
        return given.principal(request)
    user = getattr(request, "user", None)
    return str(user.pk) if user is not None and user.is_authenticated else None


def _outcome(given: Configured, response: HttpResponseBase, anonymous: bool) -> tuple[Outcome, AnswerInput | None]:
    """What an answer says about the effect, and what is kept of it."""
    said = response.headers.get(_http.OUTCOME_HEADER)
    if said is not None:
        del response.headers[_http.OUTCOME_HEADER]
        said = said.strip().lower()
    location = response.headers.get("Location")
    outcome = _http.outcome_of_status(response.status_code, said, location=location, anonymous=anonymous)
    if outcome not in ("complete", "fail"):
        return outcome, None
    body = response.content if isinstance(response, HttpResponse) else None
    headers = list(response.headers.items())
    return outcome, _http.kept_answer(response.status_code, headers, body, len(body or b""), given.door.keep)


def _settled(
    given: Configured, response: HttpResponseBase, lease: Lease, held: contextlib.ExitStack, anonymous: bool
) -> HttpResponseBase:
    outcome, kept = _outcome(given, response, anonymous)
    if isinstance(response, StreamingHttpResponse):
        Stream(response, outcome, kept, lease.settle, held.pop_all().close)
        return response
    try:
        lease.settle(outcome, kept)
    except (SemelError, httpx.HTTPError) as error:
        if kept is not None:
            return _response(_http.unsettled(error))
    return response


async def _asettle(
    response: HttpResponseBase,
    settle: Callable[[Outcome, AnswerInput | None], Awaitable[None]],
    outcome: Outcome,
    kept: AnswerInput | None,
) -> HttpResponseBase:
    try:
        await settle(outcome, kept)
    except (SemelError, httpx.HTTPError) as error:
        if kept is not None:
            return _response(_http.unsettled(error))
    return response


def _path(request: HttpRequest) -> str:
    """The path as it was sent: an escaped slash is no slash. Not all servers say so; then as it was read."""
    scope: dict[str, Any] = getattr(request, "scope", {})
    raw = scope.get("raw_path")
    if raw:
        return str(raw.split(b"?")[0].decode("latin-1"))
    sent: str = request.META.get("RAW_URI") or request.META.get("REQUEST_URI") or ""
    return sent.split("?", maxsplit=1)[0] if sent.startswith("/") else request.path


def _response(plain: Plain) -> HttpResponse:
    response = HttpResponse(plain.body, status=plain.status)
    # A default that the original may not have had.
    del response["Content-Type"]
    for name, value in _http.joined(plain.headers):
        response[name] = value
    return response


__all__ = ["IdempotencyMiddleware"]
