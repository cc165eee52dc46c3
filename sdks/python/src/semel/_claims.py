"""The protocol API without I/O: what is sent, and what an answer means. Shared by threads and asyncio."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal, cast
from uuid import UUID

from ._answer import problem_error
from ._fingerprint import fingerprint_of
from ._raw import keep_bytes
from ._send import Reply
from ._values import identity_function
from .api_types import AnswerInput, AnswerView, ClaimRequest, ClaimView, Crash, Outcome, Overrides
from .errors import AnswerNotKept, EffectFailed, LeaseLost, NoEffect, ProblemError, SemelError, Unknown, Unrecorded
from .errors import Final as FinalError
from .keys import check_key
from .retry import Received

MAX_BODY_BYTES: Final = 1024 * 1024
"""Larger answers are not sent: the server would not keep them."""

NOTHING: Final = object()
"""No payload: the key alone counts. `None` is a payload."""

ENDED: Final = frozenset({"completed", "failed"})
"""Statuses of a claim that has an answer."""

Compare = Literal["payload", "fingerprint"]
Span = float | timedelta
OnError = Literal["retry", "doubt", "release"]


@dataclasses.dataclass(frozen=True)
class Terms:
    """How an operation is treated. What an operation leaves out is as its client says, and then the server's choice.

    Spans are in seconds, or `timedelta`.
    """

    lease: Span | None = None
    """How long the owner may be silent before it counts as gone. It is renewed by itself."""
    retention: Span | None = None
    """How long the answer is kept."""
    crash: Crash | None = None
    """What becomes of the key should the owner vanish: `takeover` runs it again, `hold` leaves it in doubt."""
    wait: Span | None = None
    """How long the server lets a duplicate wait for the first; 0 doesn't wait."""
    derive: tuple[str, ...] | None = None
    """Names of downstream keys that shall come with the lease, which spares a round trip."""
    compare: Compare | None = None
    """`payload` is the default; `fingerprint` keeps the payload inside this process, and sends a digest of it."""
    on_error: OnError | None = None
    """What an error means that nobody has named: `retry`, the default, leaves it to the crash policy (free under
    `takeover`, in doubt under `hold`); `doubt` and `release` decide."""
    final: tuple[type[Exception], ...] | None = None
    """Errors that are failures for good: kept, and given to everybody who asks again."""
    no_effect: tuple[type[Exception], ...] | None = None
    """Errors by which nothing happened: the key is free again."""

    def overrides(self) -> Overrides:
        """As the API takes them."""
        out: Overrides = {}
        if self.lease is not None:
            out["lease_ms"] = _ms(self.lease)
        if self.retention is not None:
            out["retention_ms"] = _ms(self.retention)
        if self.crash is not None:
            out["crash"] = self.crash
        if self.wait is not None:
            out["wait_ms"] = _ms(self.wait)
            out["on_busy"] = "wait" if out["wait_ms"] else "refuse"
        return out


def _ms(span: Span) -> int:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 0:
        raise ValueError("a span of time below 0")
    return round(seconds * 1000)


def new_token() -> str:
    """128 random bits: with them, a claim that is sent again gets the same lease."""
    return secrets.token_hex(16)


def claim_request(
    scope: str,
    key: str,
    payload: Any,
    terms: Terms,
    *,
    tenant: str | None = None,
    actor: str | None = None,
    fingerprint: str | None = None,
) -> ClaimRequest:
    """The claim, with a token of its own."""
    out: ClaimRequest = {"scope": scope, "key": check_key(key), "token": new_token()}
    if fingerprint is not None:
        out["fingerprint"] = fingerprint
    elif payload is not NOTHING:
        # Through JSON here, so that a payload that can't be sent is refused before anything is.
        try:
            plain = json.loads(json.dumps(payload, default=plain_value, allow_nan=False))
        except TypeError as error:
            raise TypeError(f"{error}; say what counts with payload=") from None
        if terms.compare == "fingerprint":
            out["fingerprint"] = fingerprint_of(plain)
        else:
            out["payload"] = plain
    if overrides := terms.overrides():
        out["policy"] = overrides
    if terms.derive:
        out["derive"] = list(terms.derive)
    if tenant is not None:
        out["tenant"] = tenant
    if actor is not None:
        out["actor"] = actor
    return out


ABANDONING: Final = 2.0
"""The most seconds for the release of what an interrupted claim may have won."""


def asked_again(request: ClaimRequest) -> ClaimRequest:
    """The same claim, to find out what it won: its token finds the same lease (P6). For callers that are gone: under
    `hold`, a lease that nobody has would leave the key in doubt for nothing."""
    policy = {**request.get("policy", {}), "wait_ms": 0, "on_busy": "refuse"}
    return cast(ClaimRequest, {**request, "policy": policy, "retry": True})


def plain_value(value: Any) -> Any:
    """Payloads are compared, not kept, so what has one obvious JSON form is taken in that form."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        raise TypeError("a set has no order to be compared by")
    raise TypeError(f"{type(value).__name__} is no JSON")


def refuse(response: Received) -> None:
    """Raises where the server refused."""
    if response.status_code >= 300:
        raise problem_error(response)


def claim_view(reply: Reply[Any]) -> ClaimView:
    """The answer to a claim or a look."""
    refuse(reply.response)
    view = cast(ClaimView, json.loads(reply.response.content))
    keep_bytes(view, reply.response.content)
    return view


def value_of(view: ClaimView, decode: Callable[[Any], Any]) -> Any:
    """What an earlier run returned; raises what it raised."""
    answer: AnswerView = view.get("answer", {})
    if view["status"] == "failed":
        raise EffectFailed(answer.get("body"), replayed=True)
    if view["status"] not in ENDED:
        raise SemelError(f"no answer yet: {view['status']}")
    if "body_omitted_bytes" in answer:
        raise AnswerNotKept(answer["body_omitted_bytes"])
    if "body_base64" in answer and "body" not in answer:
        try:
            # JSON with white space around it, as an operator's file has it, comes as the bytes that it is.
            return decode(json.loads(base64.b64decode(answer["body_base64"])))
        except ValueError:
            raise SemelError("the answer isn't JSON: another door of this scope wrote it") from None
    return decode(answer.get("body"))


def answer_input(value: Any, encode: Callable[[Any], Any]) -> tuple[AnswerInput, Any]:
    """The answer to keep, and the value as everybody will read it, the first caller too."""
    text = json.dumps(encode(value), ensure_ascii=False, allow_nan=False, default=plain_value)
    size = len(text.encode())
    plain = json.loads(text)
    if size > MAX_BODY_BYTES:
        return {"body_omitted_bytes": size}, plain
    return {"body": plain}, plain


def outcome_of(error: BaseException, terms: Terms) -> tuple[Outcome, AnswerInput | None]:
    """What an error says about the effect."""
    if isinstance(error, (NoEffect, *(terms.no_effect or ()))):
        return "release", None
    if isinstance(error, Unknown):
        return "doubt", None
    if isinstance(error, FinalError):
        try:
            return "fail", answer_input(error.answer, identity_function)[0]
        except Exception:
            # No JSON. It failed for good all the same, and must not run again.
            return "fail", {"body_omitted_bytes": 0}
    if isinstance(error, terms.final or ()):
        return "fail", {"body": {"error": type(error).__name__, "message": str(error)[:4096]}}
    return terms.on_error or "retry", None


def not_kept(why: Exception, answer: AnswerInput | None) -> SemelError:
    """What a failure for good is told as that could not be recorded."""
    if isinstance(why, ProblemError) and why.code == "idempotency_lease_not_held":
        return LeaseLost("it failed here, and the lease was another's by then: ask again for its answer")
    return Unrecorded((answer or {}).get("body"))
