"""Django middleware: requests with a key run once.

Put `semel.django.IdempotencyMiddleware` after the authentication middleware, and say where the sidecar is:

    SEMEL = {"URL": "http://127.0.0.1:8080/_semel", "TOKEN": …}

Keys belong to the authenticated user, where there is one; else the credentials count as payload.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import httpx
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from . import _http
from ._claims import NOTHING, Terms, claim_request
from ._http import Headers, Plain
from ._lease import CURRENT
from .api_types import ClaimRequest
from .errors import KeyInvalid, PayloadInvalid, SemelError
from .keys import key_of_header
from .worker import Lease, Semel

GetResponse = Callable[[HttpRequest], HttpResponseBase]


@functools.lru_cache(maxsize=1)
def _semel() -> Semel:
    given: dict[str, Any] = settings.SEMEL
    return Semel(given["URL"], token=given.get("TOKEN"), tenant=given.get("TENANT"), terms=given.get("TERMS"))


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
        self._keep = frozenset(name.lower() for name in given.get("KEEP_HEADERS", ()))

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """One request."""
        if request.method not in self._methods:
            return self._get_response(request)
        headers = list(request.headers.items())
        try:
            key = key_of_header(_http.key_lines(headers))
            if key is None:
                return self._without_key(request)
            view, lease = self._semel.admit(self._request(request, headers, key))
        except (KeyInvalid, PayloadInvalid, SemelError, httpx.HTTPError) as error:
            return _response(_http.of_error(error))
        if view["status"] == "unprotected":
            return self._get_response(request)
        if lease is None:
            return _response(_http.replayed(view))
        with lease:
            return self._effect(request, lease)

    def _without_key(self, request: HttpRequest) -> HttpResponseBase:
        if self._require_key:
            title = "This operation needs an Idempotency-Key"
            return _response(_http.problem(400, "idempotency_key_required", title))
        return self._get_response(request)

    def _request(self, request: HttpRequest, headers: Headers, key: str) -> ClaimRequest:
        user = getattr(request, "user", None)
        principal = str(user.pk) if user is not None and user.is_authenticated else None
        digest = _http.request_fingerprint(
            request.method or "",
            request.path,
            request.META.get("QUERY_STRING", ""),
            headers,
            request.body,
            with_credentials=principal is None,
        )
        owned = key if principal is None else _http.principal_key(principal, key)
        semel = self._semel
        return claim_request(
            self._scope, owned, NOTHING, self._terms, tenant=semel.tenant, actor=semel.actor, fingerprint=digest
        )

    def _effect(self, request: HttpRequest, lease: Lease) -> HttpResponseBase:
        mark = CURRENT.set(lease)
        try:
            response = self._get_response(request)
        finally:
            CURRENT.reset(mark)
        said = response.headers.pop(_http.OUTCOME_HEADER, None)
        outcome = _http.outcome_of_status(response.status_code, said)
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


def _response(plain: Plain) -> HttpResponse:
    response = HttpResponse(plain.body, status=plain.status)
    # A default that the original may not have had.
    del response["Content-Type"]
    for name, value in _http.joined(plain.headers):
        response[name] = value
    return response
