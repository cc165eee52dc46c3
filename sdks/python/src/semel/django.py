"""Django middleware: requests with a key run once.

Put `semel.django.IdempotencyMiddleware` after the authentication middleware, and say where the sidecar is:

    SEMEL = {"URL": "http://127.0.0.1:8080/_semel", "TOKEN": …}

Keys belong to the authenticated user, where there is one; else the credentials count as payload.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2 as httpx
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from . import _http
from ._claims import NOTHING, Terms, claim_request
from ._credentials import Credentials, has_credentials
from ._http import Headers, Plain
from ._lease import CURRENT
from ._open import open as open_url
from .api_types import ClaimRequest, Outcome
from .errors import KeyInvalid, PayloadInvalid, SemelError
from .keys import key_of_header
from .worker import Lease, Semel

_STORE_SETTINGS = ("ENVIRONMENT", "SECRET", "SECRET_ID", "ENCRYPTION_KEYS")

GetResponse = Callable[[HttpRequest], HttpResponseBase]


@functools.lru_cache(maxsize=1)
def _semel() -> Semel:
    given: dict[str, Any] = settings.SEMEL
    store: Any = {name.lower(): given[name] for name in _STORE_SETTINGS if name in given}
    return open_url(
        given["URL"], token=given.get("TOKEN"), tenant=given.get("TENANT"), terms=given.get("TERMS"), **store
    )


class IdempotencyMiddleware:
    """One request after the other, each in the thread that Django gives it."""

    def __init__(self, get_response: GetResponse) -> None:
        given: dict[str, Any] = settings.SEMEL
        self._get_response = get_response
        self._semel = _semel()
        self._terms: Terms = self._semel.terms
        self._scope: str = given.get("SCOPE", "http")
        self._methods = frozenset(given.get("METHODS", _http.METHODS))
        self._require_key: bool = given.get("REQUIRE_KEY", False)
        self._authority: bool = given.get("AUTHORITY", True)
        self._keep = frozenset(name.lower() for name in given.get("KEEP_HEADERS", ()))
        self._credentials = Credentials.of(given.get("CREDENTIAL_HEADERS", ()), given.get("COOKIES", ()))

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """One request."""
        if request.method not in self._methods:
            return self._get_response(request)
        headers = list(request.headers.items())
        try:
            key = key_of_header(_http.key_lines(headers))
            if key is None:
                return self._without_key(request)
            asked, anonymous = self._request(request, headers, key)
            view, lease = self._semel.admit(asked)
        except (KeyInvalid, PayloadInvalid, SemelError, httpx.HTTPError) as error:
            return _response(_http.of_error(error))
        if view["status"] == "unprotected":
            return self._get_response(request)
        if lease is None:
            return _response(_http.replayed(view))
        with contextlib.ExitStack() as held:
            held.enter_context(lease)
            return self._effect(request, lease, held, anonymous)

    def _without_key(self, request: HttpRequest) -> HttpResponseBase:
        if self._require_key:
            title = "This operation needs an Idempotency-Key"
            return _response(_http.problem(400, "idempotency_key_required", title))
        return self._get_response(request)

    def _request(self, request: HttpRequest, headers: Headers, key: str) -> tuple[ClaimRequest, bool]:
        """What is asked for, and whether nothing says by whom."""
        user = getattr(request, "user", None)
        principal = str(user.pk) if user is not None and user.is_authenticated else None
        certificate = request.META.get("SSL_CLIENT_CERT")
        counted = None if principal else self._credentials.counted(headers, certificate)
        digest = _http.request_fingerprint(
            request.method or "",
            _http.host_of(headers) if self._authority else "",
            _path(request),
            request.META.get("QUERY_STRING", ""),
            headers,
            request.body,
            credentials=counted,
        )
        owned = _http.owned_key(principal, key)
        semel = self._semel
        claim = claim_request(
            self._scope, owned, NOTHING, self._terms, tenant=semel.tenant, actor=semel.actor, fingerprint=digest
        )
        return claim, counted is not None and not has_credentials(counted)

    def _effect(
        self, request: HttpRequest, lease: Lease, held: contextlib.ExitStack, anonymous: bool
    ) -> HttpResponseBase:
        mark = CURRENT.set(lease)
        try:
            response = self._get_response(request)
        finally:
            CURRENT.reset(mark)
        said = response.headers.get(_http.OUTCOME_HEADER)
        if said is not None:
            del response.headers[_http.OUTCOME_HEADER]
            said = said.strip().lower()
        location = response.headers.get("Location")
        outcome = _http.outcome_of_status(response.status_code, said, location=location, anonymous=anonymous)
        if isinstance(response, StreamingHttpResponse):
            stream = _Stream(response, lease, outcome, self._keep, held.pop_all())
            response.streaming_content = _AsyncParts(stream) if response.is_async else _Parts(stream)
            return response
        body = response.content if isinstance(response, HttpResponse) else None
        kept = None
        if outcome in ("complete", "fail"):
            kept = _http.kept_answer(
                response.status_code, list(response.headers.items()), body, len(body or b""), self._keep
            )
        try:
            lease.settle(outcome, kept)
        except (SemelError, httpx.HTTPError) as error:
            if kept is not None:
                return _response(_http.unsettled(error))
        return response


class _Stream:
    """An answer that goes on as it comes and isn't kept: what became of it is known at its end."""

    def __init__(
        self,
        response: StreamingHttpResponse,
        lease: Lease,
        outcome: Outcome,
        keep: frozenset[str],
        held: contextlib.ExitStack,
    ) -> None:
        self.content: Any = response.streaming_content
        self._lease, self._outcome, self._held = lease, outcome, held
        self._kept = None
        if outcome in ("complete", "fail"):
            self._kept = _http.kept_answer(response.status_code, list(response.headers.items()), None, 0, keep)
        self._ended = False

    def end(self, *, whole: bool) -> None:
        """Once: at the end, when it breaks off, or when its client has left."""
        if self._ended:
            return
        self._ended = True
        # Its caller has the answer already, so there is nobody to tell.
        with self._held, contextlib.suppress(SemelError, httpx.HTTPError):
            if whole:
                self._lease.settle(self._outcome, self._kept)
            else:
                self._lease.settle("retry", None)


class _Parts:
    def __init__(self, stream: _Stream) -> None:
        self._stream, self._parts = stream, iter(stream.content)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            part: bytes = next(self._parts)
        except StopIteration:
            self._stream.end(whole=True)
            raise
        except BaseException:
            self._stream.end(whole=False)
            raise
        return part

    def close(self) -> None:
        """Django calls it at the end, whatever that was."""
        self._stream.end(whole=False)


class _AsyncParts:
    def __init__(self, stream: _Stream) -> None:
        self._stream, self._parts = stream, stream.content.__aiter__()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            part: bytes = await self._parts.__anext__()
        except StopAsyncIteration:
            await asyncio.to_thread(self._stream.end, whole=True)
            raise
        except BaseException:
            await asyncio.to_thread(self._stream.end, whole=False)
            raise
        return part

    def close(self) -> None:
        """As `_Parts.close`."""
        self._stream.end(whole=False)


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
