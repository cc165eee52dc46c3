"""When to ask again: full jitter, `Retry-After`, a budget, and a stop on conflict. No I/O: one place decides."""

from __future__ import annotations

import contextlib
import email.utils
import json
import logging
import math
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import httpx2 as httpx

from .errors import GaveUp

RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that are asked again where the answer itself doesn't say: with a key, that is safe."""

NOT_STARTED = frozenset(
    {
        "idempotency_store_unavailable",
        "idempotency_late",
        "idempotency_body_broken",
        "idempotency_body_slow",
        "upstream_unreachable",
        "audit_unavailable",
    }
)
"""Codes that say that this attempt did nothing. Being told to wait is none of them: the key is running then, and the
operation may be done."""

WAITING = frozenset({"idempotency_in_flight", "idempotency_too_many_waiters", "idempotency_key_in_use"})
"""Codes of a server in good health that asks for patience: bounded by time, not by attempts."""

MAX_PROBLEM_BYTES = 64 * 1024

SAYS_RETRY = ("x-should-retry", "stripe-should-retry")
"""Headers of other services (OpenAI, Anthropic, Stripe) that say `true` or `false`."""

EventKind = Literal["attempt", "retry", "replay", "conflict", "in_doubt", "gave_up", "lease_lost"]

_LOG = logging.getLogger("semel")
_LEVELS: Mapping[EventKind, int] = {
    "attempt": logging.NOTSET,
    "retry": logging.INFO,
    "replay": logging.DEBUG,
}

ENDS: Mapping[object, EventKind] = {
    "idempotency_conflict": "conflict",
    "idempotency_in_doubt": "in_doubt",
    "idempotency_record_unreadable": "in_doubt",
}


@dataclass(frozen=True)
class RetryEvent:
    """A step of a call, for counters and logs. It never has the key, the URL or a body."""

    kind: EventKind
    """An attempt begins; another follows after a pause; the answer is a replay, conflict or doubt; no more tries; a
    lease is another's."""
    attempt: int
    """The attempt that it is about, from 1; 0 for a lease."""
    pause: float = 0.0
    """The pause before the next attempt, in seconds."""
    reason: str = ""
    """Why there is another attempt, or none any more."""


@dataclass(frozen=True)
class RetryPolicy:
    """All spans in seconds."""

    max_attempts: int = 6
    """The most attempts of one call; being told to wait for a run under way doesn't count."""
    base: float = 0.2
    """The first pause is random between 0 and this; each further one between 0 and twice the last bound."""
    cap: float = 10.0
    """The bound's bound."""
    attempt_timeout: float = 35.0
    """For one attempt. Longer than the server waits for a run under way, which is 30."""
    total_timeout: float = 120.0
    """For all of them, pauses included."""
    max_retry_after: float = 60.0
    """A server that asks for a longer pause is not waited for."""
    on_event: Callable[[RetryEvent], object] | None = field(default=None, compare=False)
    """Called for each step of each call, on the caller's own thread. What it raises is dropped."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or min(self.base, self.cap, self.attempt_timeout, self.total_timeout) <= 0:
            raise ValueError("a retry policy needs at least one attempt, and spans above 0")


def tell(on_event: Callable[[RetryEvent], object] | None, event: RetryEvent) -> None:
    """Logs an event, and gives it to who counts them. Nothing in it is secret."""
    level = _LEVELS.get(event.kind, logging.WARNING)
    if level and _LOG.isEnabledFor(level):
        why = f": {event.reason}" if event.reason else ""
        then = f"; the next attempt begins in {event.pause:.2f} s" if event.kind == "retry" else ""
        attempt = f", attempt {event.attempt}" if event.attempt else ""
        _LOG.log(level, "%s%s%s%s", event.kind, attempt, why, then)
    if on_event is not None:
        with contextlib.suppress(Exception):
            on_event(event)


class RetryBudget:
    """How many retries a process may spend: a reserve, and a share of its calls.

    When a server is down, every client that retries multiplies its load; the budget bounds that to `per_call`.
    """

    def __init__(self, reserve: float = 100.0, per_call: float = 0.2) -> None:
        self._reserve = reserve
        self._per_call = per_call
        self._left = reserve
        self._lock = threading.Lock()

    def call(self) -> None:
        """A first attempt: earns its share."""
        with self._lock:
            self._left = min(self._reserve, self._left + self._per_call)

    def retry(self) -> bool:
        """Whether one more retry may be spent."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    @property
    def left(self) -> float:
        """What may still be spent."""
        with self._lock:
            return self._left


class Received(Protocol):
    """What counts of an answer: one of HTTP, or one of the engine in this process."""

    @property
    def status_code(self) -> int:
        """The status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By their names in lower case."""

    @property
    def content(self) -> bytes:
        """The whole body."""


def problem_of(response: Received) -> Mapping[str, Any]:
    """The problem document of an answer, or nothing. A service writes what it likes under these names: what isn't of
    the kind that is read here is left out, so that nobody further on has to ask."""
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if not (kind.endswith("+json") or kind == "application/json") or len(response.content) > MAX_PROBLEM_BYTES:
        return {}
    if response.status_code < 400:
        return {}
    try:
        value = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return _stripes(value) | {
        name: member for name, member in value.items() if name not in _READ or _READ[name](member)
    }


def _stripes(document: Mapping[str, Any]) -> dict[str, Any]:
    """What an error object of Stripe's form says of keys: `{"error": {"type": "idempotency_error", "code": …}}`."""
    error = document.get("error")
    if not isinstance(error, dict):
        return {}
    code = error.get("code")
    if isinstance(code, str) and code.startswith("idempotency_"):
        return {"code": code}
    # Stripe itself has no code for a key that was used with another payload.
    return {"code": "idempotency_conflict"} if error.get("type") == "idempotency_error" and code is None else {}


def _is_span(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:
        return False


_MILLIS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

_READ: Mapping[str, Callable[[Any], bool]] = {
    "code": lambda value: isinstance(value, str),
    "retryable": lambda value: isinstance(value, bool),
    "retryAfterMs": _is_span,
}


def retry_after(response: Received, problem: Mapping[str, Any], now: datetime | None = None) -> float | None:
    """How long the server asks to wait: the finer of what it says, in seconds."""
    exact: float | None = problem.get("retryAfterMs")
    if exact is not None:
        return exact / 1000
    millis = response.headers.get("retry-after-ms", "").strip()
    if _MILLIS.fullmatch(millis):
        return float(millis) / 1000
    text = response.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - (now or datetime.now(UTC))).total_seconds())


def as_response(received: Received) -> httpx.Response:
    """The same, for those who know httpx."""
    return httpx.Response(received.status_code, headers=dict(received.headers), content=received.content)


@dataclass(frozen=True)
class Verdict:
    """What an answer means for the next attempt."""

    again: bool
    waits: bool = False
    after: float | None = None
    nothing_done: bool = False


def judge(response: Received) -> Verdict:
    """Whether to ask again. What the answer says itself counts more than its status."""
    status, problem = response.status_code, problem_of(response)
    after, code = retry_after(response, problem), problem.get("code")
    says = problem.get("retryable")
    if not isinstance(says, bool):
        words = [response.headers.get(name, "").strip().lower() for name in SAYS_RETRY]
        says = next((word == "true" for word in words if word in ("true", "false")), None)
    if isinstance(says, bool):
        again = says and status >= 400
    else:
        # A plain 409 may be a conflict for good; one that names a time is not.
        again = status in RETRYABLE or code in WAITING or (status == 409 and after is not None)
    return Verdict(again, waits=code in WAITING, after=after, nothing_done=code in NOT_STARTED)


class Course:
    """The attempts of one call: how many, how long, when the next. `unknown` where others may have sent it before."""

    def __init__(
        self,
        policy: RetryPolicy,
        budget: RetryBudget,
        *,
        key: str | None = None,
        unknown: bool = False,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._policy, self._budget, self._key = policy, budget, key
        self._clock, self._chance = clock, chance
        self._end = clock() + policy.total_timeout
        self._counted = 0
        self.attempts = 0
        self.unknown = unknown
        self.sent_at = 0.0
        """When the last attempt was begun."""
        self.unanswered_at: float | None = None
        """When the first was begun that may have arrived, and of which nobody said what became of it."""
        budget.call()

    def begin(self) -> float:
        """Begins an attempt; answers with the time it may take."""
        self.attempts += 1
        self.sent_at = self._clock()
        self._tell("attempt")
        return max(0.001, min(self._policy.attempt_timeout, self._end - self.sent_at))

    def after_response(self, response: Received) -> float | None:
        """The pause before the next attempt, or `None` where this answer is the last; else `GaveUp`."""
        verdict = judge(response)
        if not verdict.again:
            replayed = response.headers.get("idempotent-replayed") == "true"
            end = "replay" if replayed else ENDS.get(problem_of(response).get("code"))
            if end is not None:
                self._tell(end)
            return None
        self.unknown = self.unknown or not verdict.nothing_done
        if not verdict.waits:
            # A server that lost its store's reply says that nothing was started. Its claim may stand all the same.
            self._unanswered()
        reason = f"the last answer was {response.status_code}"
        return self._pause(reason, counts=not verdict.waits, after=verdict.after, response=response)

    def after_error(self, error: Exception) -> float:
        """The pause after an attempt without an answer."""
        never_sent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        self.unknown = self.unknown or not never_sent
        if not never_sent:
            self._unanswered()
        return self._pause(f"no answer ({type(error).__name__})", counts=True, after=None, response=None)

    def _unanswered(self) -> None:
        if self.unanswered_at is None:
            self.unanswered_at = self.sent_at

    def _pause(self, reason: str, *, counts: bool, after: float | None, response: Received | None) -> float:
        policy = self._policy
        self._counted += counts
        bound = min(policy.cap, policy.base * 2.0 ** min(self.attempts - 1, 32))
        # What the server asks for is the least, and the jitter comes on top: all who were told the same come apart.
        pause = (after or 0.0) + self._chance() * bound
        if counts and self._counted >= policy.max_attempts:
            raise self._gave_up(reason, response)
        if after is not None and after > policy.max_retry_after:
            raise self._gave_up(f"{reason}, which asks to wait {after:.0f} s", response)
        if self._clock() + pause >= self._end:
            raise self._gave_up(f"{reason}, and the time is up", response)
        if counts and not self._budget.retry():
            raise self._gave_up(f"{reason}, and the retry budget is spent", response)
        self._tell("retry", pause, reason)
        return pause

    def _gave_up(self, reason: str, last: Received | None) -> GaveUp:
        response = last if last is None or isinstance(last, httpx.Response) else as_response(last)
        self._tell("gave_up", reason=reason)
        return GaveUp(self._key, self.attempts, reason=reason, unknown=self.unknown, response=response)

    def _tell(self, kind: EventKind, pause: float = 0.0, reason: str = "") -> None:
        tell(self._policy.on_event, RetryEvent(kind, self.attempts, pause, reason))
