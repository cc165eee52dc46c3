"""AWS Lambda: handlers that run once for each event, or for each `Idempotency-Key` of an HTTP request.

@idempotent(once, "charge", key="charge-{order}")
def handler(event, context): ...
"""

from __future__ import annotations

import base64
import contextlib
import functools
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import httpx2 as httpx

from . import _http
from ._arguments import key_of_members
from ._claims import Terms
from ._door import Door, Request, merged_terms
from ._http import Headers, Plain
from ._lease import merged, running_under
from ._values import codec_for
from .errors import KeyInvalid, PayloadInvalid, SemelError
from .worker import Lease, Semel

Event = Mapping[str, Any]
Handler = Callable[[Any, Any], Any]
H = TypeVar("H", bound=Handler)


class Context(Protocol):
    """What counts of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        """Until the function is ended."""


def _within(terms: Terms, context: Context | None) -> Terms:
    """No lease outlives its function: one that was ended would hold its key for nothing."""
    if terms.lease is not None or context is None:
        return terms
    left = context.get_remaining_time_in_millis() / 1000
    return replace(terms, lease=min(max(left, 1.0), 24 * 3600.0))


def idempotent(
    once: Semel,
    scope: str,
    *,
    key: str | Callable[[Any], str],
    payload: Callable[[Any], Any] | None = None,
    terms: Terms | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
) -> Callable[[H], H]:
    """A handler that runs once for each key: a text with members of the event, such as `charge-{order}` or
    `{detail[id]}`, or a function of the event. The event is the payload, unless `payload` says what counts of it.

    A lease without a span of its own lasts as long as the function may still run.
    """
    own = merged(terms, once.terms)

    def wrap(handler: H) -> H:
        codec = codec_for(handler, encode, decode)

        @functools.wraps(handler)
        def wrapped(event: Any, context: Any) -> Any:
            found = key(event) if callable(key) else key_of_members(key, event)
            asked = event if payload is None else payload(event)

            def effect(_: object) -> Any:
                return handler(event, context)

            return once._run(scope, found, effect, codec, payload=asked, terms=_within(own, context)).value

        return wrapped  # type: ignore[return-value]

    return wrap


def idempotent_http(
    once: Semel,
    *,
    scope: str = "http",
    principal: Callable[[Any], str | None] | None = None,
    methods: Iterable[str] = _http.METHODS,
    require_key: bool = False,
    terms: Terms | None = None,
    authority: bool = True,
    keep_headers: Iterable[str] = (),
    credential_headers: Iterable[str] = (),
    cookies: Iterable[str] = (),
    routes: Mapping[str, Terms] | None = None,
) -> Callable[[H], H]:
    """A handler of API Gateway (both formats), function URLs or a load balancer: a request with a key runs once.

    The arguments are those of `semel.wsgi.IdempotencyMiddleware`; `principal` gets the event.
    """
    door = Door.of(
        merged_terms(terms, once),
        routes=routes,
        methods=methods,
        require_key=require_key,
        authority=authority,
        keep_headers=keep_headers,
        credential_headers=credential_headers,
        cookies=cookies,
    )

    def wrap(handler: H) -> H:
        @functools.wraps(handler)
        def wrapped(event: Any, context: Any) -> Any:
            def run() -> Any:
                return handler(event, context)

            request, many = _request(event), "multiValueHeaders" in event
            try:
                key = door.key(request.method, request.headers)
                if key is None:
                    with running_under(None):
                        return run()
                owner = principal(event) if principal else None
                claim, anonymous = door.claim(once, request, key, scope=scope, principal=owner)
                if "lease_ms" not in claim.get("policy", {}):
                    own = _within(Terms(), context).overrides()
                    claim["policy"] = {**own, **claim.get("policy", {})}
                view, lease = once.admit(claim)
            except (KeyInvalid, PayloadInvalid, SemelError, httpx.HTTPError) as error:
                return _response(_http.of_error(error), many)
            if view["status"] == "unprotected":
                with running_under(None):
                    return run()
            return (
                _response(_http.replayed(view), many) if lease is None else _effect(run, lease, door, anonymous, many)
            )

        return wrapped  # type: ignore[return-value]

    return wrap


def _effect(run: Callable[[], Any], lease: Lease, door: Door, anonymous: bool, many: bool) -> Any:
    with lease:
        try:
            with running_under(lease):
                response = run()
            status, headers, body = _answer(response)
        except BaseException:
            with contextlib.suppress(SemelError, httpx.HTTPError):
                lease.settle("retry", None)
            raise
        said = next((value for name, value in headers if name.lower() == _http.OUTCOME_HEADER), None)
        where = _http.location_of(headers)
        outcome = _http.outcome_of_status(
            status, said.strip().lower() if said else None, location=where, anonymous=anonymous
        )
        keeps = outcome in ("complete", "fail")
        kept = _http.kept_answer(status, headers, body, len(body), door.keep) if keeps else None
        try:
            lease.settle(outcome, kept)
        except (SemelError, httpx.HTTPError) as error:
            if keeps:
                return _response(_http.unsettled(error), many)
        return _without_outcome(response)


def _without_outcome(response: Any) -> Any:
    """The header that says what became of it is for us."""
    if not isinstance(response, Mapping):
        return response
    for member in ("headers", "multiValueHeaders"):
        given = response.get(member)
        if given and any(name.lower() == _http.OUTCOME_HEADER for name in given):
            kept = {name: value for name, value in given.items() if name.lower() != _http.OUTCOME_HEADER}
            response = {**response, member: kept}
    return response


def _request(event: Event) -> Request:
    about = event.get("requestContext", {})
    web = about.get("http", {})
    path = str(event.get("rawPath") or event.get("path") or "/")
    many: Mapping[str, list[str]] = event.get("multiValueHeaders") or {}
    lines = [(name, line) for name, given in many.items() for line in given]
    headers = lines or list((event.get("headers") or {}).items())
    cookies = event.get("cookies")
    if cookies:
        headers.append(("cookie", "; ".join(cookies)))
    query = event.get("rawQueryString")
    if query is None:
        given = event.get("multiValueQueryStringParameters") or event.get("queryStringParameters") or {}
        query = urllib.parse.urlencode(sorted(given.items()), doseq=True)
    body = event.get("body") or ""
    content = base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()
    method = str(web.get("method") or event.get("httpMethod") or "")
    return Request(method, path, path, query, [(name.lower(), value) for name, value in headers], content)


def _answer(response: Any) -> tuple[int, Headers, bytes]:
    """What a handler's result is as an answer of HTTP: without a status, it is a JSON body for 200."""
    if not isinstance(response, Mapping) or "statusCode" not in response:
        return 200, [("Content-Type", "application/json")], _http.json_bytes(response)
    many: Mapping[str, list[Any]] = response.get("multiValueHeaders") or {}
    headers = [(name, str(line)) for name, given in many.items() for line in given]
    headers += [(name, str(value)) for name, value in (response.get("headers") or {}).items() if name not in many]
    body = response.get("body") or ""
    content = base64.b64decode(body) if response.get("isBase64Encoded") else str(body).encode()
    return int(response["statusCode"]), headers, content


def _response(plain: Plain, many: bool) -> dict[str, Any]:
    """`many`: a load balancer that gives many values of a header wants them so."""
    headers = dict(_http.joined(plain.headers))
    out: dict[str, Any] = {"statusCode": plain.status, "headers": headers, "isBase64Encoded": False}
    if many:
        out["multiValueHeaders"] = {name: [value] for name, value in headers.items()}
    try:
        out["body"] = plain.body.decode()
    except UnicodeDecodeError:
        out |= {"body": base64.b64encode(plain.body).decode(), "isBase64Encoded": True}
    return out
