"""HTTP requests as operations, without I/O: what counts, what an answer means, what is kept of it.

The rules are those of the sidecar's HTTP layer (`docs/http.md`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx

from . import _credentials
from ._claims import MAX_BODY_BYTES
from ._fingerprint import Part, fingerprint
from .api_types import AnswerInput, ClaimView, Outcome
from .errors import GaveUp, KeyInvalid, LeaseLost, PayloadInvalid, ProblemError, SemelError
from .retry import problem_of

Headers = list[tuple[str, str]]

METHODS = frozenset({"POST", "PATCH"})
GATHER_SECONDS = 5.0
"""For so long an answer is held back until it is whole."""
MAX_REQUEST_BYTES = 2 * 1024 * 1024
KEY_HEADERS = ("idempotency-key", "x-idempotency-key")
OUTCOME_HEADER = "semel-outcome"
METHOD_OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override")
KEPT = frozenset(
    {
        "content-type",
        "content-encoding",
        "content-language",
        "content-disposition",
        "content-location",
        "etag",
        "last-modified",
        "link",
        "location",
        "vary",
        "content-security-policy",
        "referrer-policy",
        "strict-transport-security",
        "x-content-type-options",
        "x-frame-options",
        "cross-origin-resource-policy",
    }
)
NOT_NOW = frozenset({401, 407, 408, 409, 425, 429})
_OWNED = re.compile(r"p-[0-9a-f]{64}")


@dataclass(frozen=True)
class Plain:
    """An answer to be sent."""

    status: int
    headers: Headers
    body: bytes


def location_of(headers: Headers) -> str | None:
    """Where an answer leads."""
    return next((value for name, value in headers if name.lower() == "location"), None)


def key_lines(headers: Iterable[tuple[str, str]]) -> list[str]:
    """The lines of either key header."""
    return [value for name, value in headers if name.lower() in KEY_HEADERS]


def host_of(headers: Headers) -> str:
    """The host that was asked."""
    return next((value.strip().lower() for name, value in headers if name.lower() == "host"), "")


def request_fingerprint(
    method: str,
    host: str,
    path: str,
    query: str,
    headers: Headers,
    body: bytes,
    *,
    credentials: _credentials.Counted | None,
) -> str:
    """Method, host, path, query, media type and body; JSON by its meaning. Where nobody said whose request it is, the
    credentials count too: a key that is used with others is refused, never answered with somebody else's answer."""

    def lines(name: str) -> list[str]:
        return [value for found, value in headers if found.lower() == name]

    full = (lines("content-type") or [""])[0]
    media = full.split(";")[0].strip().lower()
    says_json = media in ("application/json", "text/json") or media.endswith("+json")
    is_json = bool(body) and says_json
    # JSON has no parameters that matter; those of other types do.
    media = media if says_json or ";" not in full else full
    parts = [Part.raw(method.upper()), Part.raw(host), Part.raw(path), Part.raw(query), Part.raw(media)]
    parts.append(Part.json(body) if is_json else Part.raw(body))
    for name in ("content-encoding", *METHOD_OVERRIDES):
        if lines(name):
            parts += [Part.raw(name), Part.raw("\n".join(lines(name)))]
    for at, (name, values) in enumerate(credentials or []):
        if at >= _credentials.ALWAYS:
            parts.append(Part.raw(name))
        parts.append(Part.raw("\n".join(values)))
    return fingerprint(parts)


def principal_key(principal: str, key: str) -> str:
    """The key under which a principal's `key` is claimed: keys of two principals never meet."""
    owner, name = principal.encode(), key.encode()
    digest = hashlib.sha256(len(owner).to_bytes(8, "little") + owner + name)
    return "p-" + digest.hexdigest()


def owned_key(principal: str | None, key: str) -> str:
    """The key to claim. What looks like a principal's own is nobody else's to use."""
    if principal:
        return principal_key(principal, key)
    if _OWNED.fullmatch(key):
        raise KeyInvalid("character")
    return key


def outcome_of_status(
    status: int, said: str | None, *, location: str | None = None, anonymous: bool = False
) -> Outcome:
    """What an answer says about the effect. One that asks for credentials is not kept for a request that had none."""
    if said is None and anonymous and _credentials.asks_to_sign_in(status, location):
        return "release"
    if said == "no-effect" or (said is None and status in NOT_NOW):
        return "release"
    if said == "unknown":
        return "doubt"
    if status >= 500:
        return "retry"
    return "fail" if status >= 400 else "complete"


def kept_answer(status: int, headers: Headers, body: bytes | None, size: int, more: frozenset[str]) -> AnswerInput:
    """What is stored of an answer: status, end-to-end headers of a list, the body where it was gathered."""
    allowed = KEPT | more
    out: AnswerInput = {"status": status}
    # A header that the record can't hold is left out, rather than the whole answer.
    kept = [(name, value) for name, value in headers if name.lower() in allowed and _printable(value)]
    out["headers"] = [{"name": name, "value": value} for name, value in kept[:64]]
    if body is None or len(body) > MAX_BODY_BYTES:
        out["body_omitted_bytes"] = size
    else:
        out["body_base64"] = base64.b64encode(body).decode()
    return out


def _printable(value: str) -> bool:
    return len(value) <= 4096 and all(" " <= c <= "~" for c in value)


def replayed(view: ClaimView) -> Plain:
    """The answer of an earlier run, again."""
    answer = view.get("answer", {})
    if "status" not in answer:
        return problem(500, "idempotency_answer_unreadable", "The stored response cannot be read")
    headers = [(header["name"], header["value"]) for header in answer.get("headers", [])]
    ours = [("Idempotent-Replayed", "true"), ("Cache-Control", "no-store")]
    if "original_time" in view:
        ours.append(("X-Original-Request-Time", view["original_time"]))
    if "body_omitted_bytes" in answer:
        plain = problem(answer["status"], "idempotency_body_not_kept", "Done before; the answer's body was not kept")
        headers = _with(_with(headers, ours), [("Idempotent-Not-Kept", "body"), *plain.headers])
        return Plain(answer["status"], headers, plain.body)
    headers = _with(headers, ours)
    if "body_base64" in answer:
        return Plain(answer["status"], headers, base64.b64decode(answer["body_base64"]))
    return Plain(answer["status"], headers, b"")


def _with(headers: Headers, ours: Headers) -> Headers:
    """Ours in place of any of the same names: a client reads two lines of one name as a list."""
    names = {name.lower() for name, _ in ours}
    return [line for line in headers if line[0].lower() not in names] + ours


def joined(headers: Headers) -> Headers:
    """One line for each name, for those who can't hold two. `Set-Cookie`, which can't be joined, is never stored."""
    lines: dict[str, tuple[str, str]] = {}
    for name, value in headers:
        first, before = lines.get(name.lower(), (name, ""))
        lines[name.lower()] = (first, f"{before}, {value}" if before else value)
    return list(lines.values())


def json_bytes(value: Any) -> bytes:
    """JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def problem(
    status: int, code: str, title: str, *, detail: str = "", retryable: bool = False, after: float | None = None
) -> Plain:
    """A problem document (RFC 9457) of our own."""
    document: dict[str, Any] = {
        "type": f"urn:semel:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail or title,
        "code": code,
        "retryable": retryable,
    }
    if after is not None:
        document["retryAfterMs"] = round(after * 1000)
    return from_document(status, document, after)


def from_document(status: int, document: Mapping[str, Any], after: float | None) -> Plain:
    """One of the server's, passed on."""
    headers = [("Content-Type", "application/problem+json"), ("Cache-Control", "no-store")]
    if after is not None:
        headers.append(("Retry-After", str(max(1, math.ceil(after)))))
    return Plain(status, headers, json_bytes(dict(document)))


UNREACHABLE = "The request was not started"
MISCONFIGURED = "The service cannot use its idempotency API"
_CHECKS = {
    401: "it wants a token, or another one",
    403: "the token does not allow this, or `api.access` does not allow this address",
    404: "check that `semel serve` runs there with `api.access` set, and that the URL ends in /_semel",
    405: "check that the URL ends in /_semel",
}
_LOG = logging.getLogger("semel")


KEY_REQUIRED = "This operation needs an Idempotency-Key"


class Refused(SemelError):
    """A request that is answered before it is claimed."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(f"refused with {plain.status}")
        self.plain = plain


def of_error(error: Exception) -> Plain:
    """The answer where there is none: nothing was started, or nobody knows; never a guess."""
    if isinstance(error, Refused):
        return error.plain
    if isinstance(error, KeyInvalid):
        return problem(400, "idempotency_key_invalid", "The Idempotency-Key can't be used", detail=str(error))
    if isinstance(error, PayloadInvalid):
        return problem(400, "idempotency_payload_invalid", "The payload can't be compared", detail=str(error))
    if isinstance(error, GaveUp) and error.response is not None:
        found = problem_of(error.response)
        if found.get("code"):
            return _passed_on(error.response.status_code, found)
    if isinstance(error, ProblemError) and error.code.startswith("idempotency_"):
        return _passed_on(error.status, error.problem)
    if isinstance(error, ProblemError):
        # Asking again doesn't help, so a client isn't told to. Who can mend it reads the log.
        check = _CHECKS.get(error.status, "check that the URL is that of `semel serve`")
        _LOG.error("no request runs: the idempotency API answers %d; %s", error.status, check)
        return problem(500, "idempotency_policy", MISCONFIGURED, detail="The log of the service says why.")
    if isinstance(error, (LeaseLost, SemelError)):
        cause = error.__context__
        if isinstance(cause, httpx.ConnectError):
            _LOG.error("no request runs: the idempotency API or its store can't be reached: %s", cause)
        return problem(503, "idempotency_store_unavailable", UNREACHABLE, retryable=True, after=1.0)
    raise error


def _passed_on(status: int, found: Mapping[str, Any]) -> Plain:
    document = {name: value for name, value in found.items() if name != "claim"}
    after = found.get("retryAfterMs")
    return from_document(status, document, None if after is None else after / 1000)


def unsettled(error: Exception) -> Plain:
    """The answer where the effect ran and its outcome could not be recorded."""
    if isinstance(error, ProblemError) and error.code == "idempotency_lease_not_held":
        other = error.problem.get("claim")
        if isinstance(other, Mapping):
            return replayed(other)  # type: ignore[arg-type]
        return problem(503, "idempotency_lease_lost", "Another took the request over", retryable=True, after=1.0)
    return problem(503, "idempotency_unrecorded", "The outcome could not be recorded", retryable=True, after=1.0)
