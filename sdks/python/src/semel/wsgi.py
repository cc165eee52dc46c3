"""WSGI middleware: requests with a key run once. For Flask, Bottle, Pyramid, Falcon and any other.

app.wsgi_app = IdempotencyMiddleware(app.wsgi_app, semel=semel.open("redis://…"))
"""

from __future__ import annotations

import contextlib
import http
import io
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpx2 as httpx

from . import _http
from ._claims import Terms
from ._door import Door, Request, merged_terms
from ._http import Headers, Plain
from ._lease import running_under
from ._wsgi_answers import Gathered, StartResponse
from .errors import KeyInvalid, PayloadInvalid, SemelError
from .worker import Lease, Semel

Environ = dict[str, Any]
App = Callable[[Any, Any], Iterable[bytes]]

LEASE = "semel.lease"
"""Where a handler finds its lease: `environ["semel.lease"]`; `current_lease()` gives it too."""

_BODY_TOO_LARGE = "The request's body is too large to be compared"


class IdempotencyMiddleware:
    """Put it inside whatever authenticates, and outside whatever acts.

    `principal` says by the WSGI environment whose request it is (`None`: nobody known); without it, the credentials
    count as payload. The other arguments are those of `semel.asgi.IdempotencyMiddleware`. The time of `gather` is
    looked at whenever the application gives a part of its answer.
    """

    def __init__(  # noqa: PLR0913
        self,
        app: App,
        *,
        semel: Semel,
        scope: str | Callable[[Environ], str] = "http",
        principal: Callable[[Environ], str | None] | None = None,
        methods: Iterable[str] = _http.METHODS,
        require_key: bool = False,
        terms: Terms | None = None,
        max_body: int = _http.MAX_REQUEST_BYTES,
        authority: bool = True,
        keep_headers: Iterable[str] = (),
        credential_headers: Iterable[str] = (),
        cookies: Iterable[str] = (),
        routes: Mapping[str, Terms] | None = None,
        gather: float = _http.GATHER_SECONDS,
    ) -> None:
        self._app, self._semel, self._scope, self._principal = app, semel, scope, principal
        self._max_body, self._seconds = max_body, gather
        self._door = Door.of(
            merged_terms(terms, semel),
            routes=routes,
            methods=methods,
            require_key=require_key,
            authority=authority,
            keep_headers=keep_headers,
            credential_headers=credential_headers,
            cookies=cookies,
        )

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        headers = headers_of(environ)
        try:
            key = self._door.key(environ["REQUEST_METHOD"], headers)
            if key is None:
                return self._unprotected(environ, start_response)
            request = self._request(environ, headers)
            principal = self._principal(environ) if self._principal else None
            scope = self._scope if isinstance(self._scope, str) else self._scope(environ)
            claim, anonymous = self._door.claim(self._semel, request, key, scope=scope, principal=principal)
            view, lease = self._semel.admit(claim)
        except (KeyInvalid, PayloadInvalid, SemelError, httpx.HTTPError) as error:
            return answered(start_response, _http.of_error(error))
        if view["status"] == "unprotected":
            return self._unprotected(environ, start_response)
        if lease is None:
            return answered(start_response, _http.replayed(view))
        with contextlib.ExitStack() as held:
            held.enter_context(lease)
            return self._effect(environ, start_response, lease, held, anonymous)

    def _unprotected(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        with running_under(None):
            return self._app(environ, start_response)

    def _request(self, environ: Environ, headers: Headers) -> Request:
        """The request with its body, which the application reads again."""
        body = body_of(environ, self._max_body)
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        return Request(
            environ["REQUEST_METHOD"],
            path.encode("latin-1").decode("utf-8", "replace"),
            _sent_path(environ, path),
            environ.get("QUERY_STRING", ""),
            headers,
            body,
            environ.get("SSL_CLIENT_CERT"),
        )

    def _effect(
        self,
        environ: Environ,
        start_response: StartResponse,
        lease: Lease,
        held: contextlib.ExitStack,
        anonymous: bool,
    ) -> Iterable[bytes]:
        environ[LEASE] = lease
        gathered = Gathered(lease, start_response, self._seconds, self._door.keep, anonymous)
        try:
            with running_under(lease):
                gathered.take(self._app(environ, gathered.start))
        except BaseException:
            gathered.settle_quietly(whole=False)
            raise
        if gathered.passing:
            return gathered.passed_on(held.pop_all())
        refused = gathered.settle()
        return answered(start_response, refused) if refused is not None else gathered.released()


def answered(start_response: StartResponse, plain: Plain) -> list[bytes]:
    """Sends an answer of this package."""
    try:
        phrase = http.HTTPStatus(plain.status).phrase
    except ValueError:
        phrase = "Unknown"
    headers = [*_http.joined(plain.headers), ("Content-Length", str(len(plain.body)))]
    start_response(f"{plain.status} {phrase}", headers, None)
    return [plain.body]


def headers_of(environ: Environ) -> Headers:
    found = [(name[5:].replace("_", "-").lower(), value) for name, value in environ.items() if name.startswith("HTTP_")]
    own = {"CONTENT_TYPE": "content-type", "CONTENT_LENGTH": "content-length"}
    return found + [(name, environ[member]) for member, name in own.items() if environ.get(member)]


def _sent_path(environ: Environ, path: str) -> str:
    """Not all servers say how it was sent; then as it was read."""
    sent: str = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
    return sent.split("?", maxsplit=1)[0] if sent.startswith("/") else urllib.parse.quote(path, encoding="latin-1")


def body_of(environ: Environ, most: int) -> bytes:
    length, given = environ.get("CONTENT_LENGTH") or "", environ["wsgi.input"]
    if length.isascii() and length.isdigit():
        wanted = int(length)
        body: bytes = given.read(wanted) if wanted <= most else b""
        if wanted <= most and len(body) < wanted:
            raise _http.Refused(_http.problem(400, "idempotency_body_broken", "The request body ended early"))
    elif environ.get("wsgi.input_terminated"):
        body = given.read(most + 1)
        wanted = len(body)
    else:
        body, wanted = b"", 0
    if wanted > most:
        raise _http.Refused(_http.problem(413, "idempotency_body_too_large", _BODY_TOO_LARGE))
    return body
