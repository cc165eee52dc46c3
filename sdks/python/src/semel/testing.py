"""For tests of code that uses this package: a server in memory, a clock that the test moves, replies that get lost.

It decides by the same table as the real one (`spec/protocol.md`), for one process. That your service works with the
real one is for a test with the real one to show.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from ._fingerprint import fingerprint_of
from .aworker import AsyncSemel
from .errors import PayloadInvalid
from .retry import RetryPolicy
from .worker import Semel

_RETRY = RetryPolicy(base=0.001, cap=0.01, attempt_timeout=5, total_timeout=10)


@dataclass
class _Record:
    state: str
    fingerprint: str
    token: str
    fence: int
    attempt: int
    crash: str
    lease: float
    lease_end: float
    retention: float
    expires: float
    checkpoint: Any = None
    answer: dict[str, Any] = field(default_factory=dict)


class FakeSemel:
    """A server in memory. `semel()` and `async_semel()` are clients of it, `transport` is for others.

    With `observes` it enforces nothing, as a sidecar in the mode `observe`: code runs without a lease.

    >>> fake = FakeSemel()
    >>> fake.semel().run("greet", "k-1", lambda lease: "hello").value
    'hello'
    """

    def __init__(
        self, *, lease: float = 30.0, retention: float = 86_400.0, max_attempts: int = 3, observes: bool = False
    ) -> None:
        self._observes = observes
        self._lease, self._retention, self._max_attempts = lease, retention, max_attempts
        self._records: dict[str, _Record] = {}
        self._lock = threading.Lock()
        self._ahead = 0.0
        self._fence = 0
        self._to_lose = 0
        self.calls: list[str] = []
        """What was asked, in order: `claim`, `renew`, `settle`, `look`, `keys`, `lookup`."""
        self.transport = httpx.MockTransport(self._answer)
        """For an `httpx.Client` or `httpx.AsyncClient` of your own."""

    def semel(self, **options: Any) -> Semel:
        """A client of it."""
        http = httpx.Client(transport=self.transport)
        return Semel("http://semel.test", http=http, **{"retry": _RETRY, **options})

    def async_semel(self, **options: Any) -> AsyncSemel:
        """A client of it, for asyncio."""
        http = httpx.AsyncClient(transport=self.transport)
        return AsyncSemel("http://semel.test", http=http, **{"retry": _RETRY, **options})

    def advance(self, seconds: float) -> None:
        """Moves the clock: leases lapse, records expire."""
        self._ahead += seconds

    def lose_replies(self, count: int) -> None:
        """The next `count` requests are carried out, and their answers lost."""
        self._to_lose += count

    def state(self, scope: str, key: str, tenant: str = "") -> str | None:
        """Where a key stands: `running`, `completed`, `failed`, `in_doubt`, `released`, or nothing."""
        with self._lock:
            record = self._live(_identity(tenant, scope, key))
            return record.state if record else None

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else {}
        _, _, *rest = request.url.path.split("/")
        with self._lock:
            response = self._route(rest, body)
            if self._to_lose > 0:
                self._to_lose -= 1
                raise httpx.ReadError("lost by the test", request=request)
        return response

    def _route(self, path: list[str], body: dict[str, Any]) -> httpx.Response:
        if path == ["claims"]:
            self.calls.append("claim")
            return self._claim(body)
        if path == ["lookups"]:
            self.calls.append("lookup")
            return self._look(_identity(body.get("tenant", ""), body["scope"], body["key"]))
        action = path[2] if len(path) > 2 else "look"
        self.calls.append(action)
        if action == "look":
            return self._look(path[1])
        if action == "keys":
            keys = {name: _downstream_key(path[1], name) for name in body["names"]}
            return httpx.Response(200, json={"id": path[1], "keys": keys})
        record = self._live(path[1])
        owned = record is not None and (record.token, record.fence) == (body["token"], body["fence"])
        if record is None or not owned:
            done = action == "settle" and record is not None and record.state in ("completed", "failed")
            other: dict[str, Any] = {"claim": self._view(path[1], record, replayed=True)} if done and record else {}
            return _problem(409, "idempotency_lease_not_held", **other)
        return self._renew(path[1], record, body) if action == "renew" else self._settle(path[1], record, body)

    def _live(self, claim: str) -> _Record | None:
        record = self._records.get(claim)
        return None if record is None or record.expires <= self._now() else record

    def _claim(self, body: dict[str, Any]) -> httpx.Response:
        claim = _identity(body.get("tenant", ""), body["scope"], body["key"])
        try:
            print_ = body.get("fingerprint") or (fingerprint_of(body["payload"]) if "payload" in body else "")
        except PayloadInvalid:
            return _problem(400, "idempotency_payload_invalid")
        record, now = self._live(claim), self._now()
        if self._observes:
            return httpx.Response(200, json={"id": claim, "status": "unprotected", "replayed": False, "took_ms": 0})
        if record is None or record.state == "released":
            return self._won(claim, self._first(body, print_), body)
        if record.fingerprint != print_:
            return _problem(422, "idempotency_conflict")
        if record.state in ("completed", "failed"):
            return httpx.Response(200, json=self._view(claim, record, replayed=True))
        if record.state == "running" and record.token == body.get("token"):
            # As it stands (P6): who sends a claim again may find that its lease has lapsed meanwhile.
            return self._lease_of(claim, record, body)
        if record.state == "running" and record.lease_end > now:
            return _problem(409, "idempotency_in_flight", retryable=True, retryAfterMs=5)
        if record.state == "running" and record.crash == "takeover" and record.attempt < self._max_attempts:
            self._fence += 1
            record.token, record.fence, record.attempt = body["token"], self._fence, record.attempt + 1
            return self._won(claim, record, body)
        record.state = "in_doubt"
        return _problem(409, "idempotency_in_doubt")

    def _first(self, body: dict[str, Any], print_: str) -> _Record:
        policy = body.get("policy", {})
        self._fence += 1
        return _Record(
            "running",
            print_,
            body.get("token", ""),
            self._fence,
            1,
            policy.get("crash", "takeover"),
            policy.get("lease_ms", self._lease * 1000) / 1000,
            0.0,
            policy.get("retention_ms", self._retention * 1000) / 1000,
            0.0,
        )

    def _won(self, claim: str, record: _Record, body: dict[str, Any]) -> httpx.Response:
        self._records[claim] = record
        record.lease_end = self._now() + record.lease
        record.expires = self._now() + record.retention
        return self._lease_of(claim, record, body)

    def _lease_of(self, claim: str, record: _Record, body: dict[str, Any]) -> httpx.Response:
        keys = {name: _downstream_key(claim, name) for name in body.get("derive", [])}
        lease = {
            "token": record.token,
            "fence": record.fence,
            "attempt": record.attempt,
            "expires_in_ms": round(record.lease * 1000),
            "renew_every_ms": round(record.lease * 1000 / 3),
            "crash": record.crash,
            "downstream_keys": keys,
            **({} if record.checkpoint is None else {"checkpoint": record.checkpoint}),
        }
        return httpx.Response(201, json={**self._view(claim, record), "status": "claimed", "lease": lease})

    def _renew(self, claim: str, record: _Record, body: dict[str, Any]) -> httpx.Response:
        if record.state != "running":
            return _problem(409, "idempotency_lease_not_held")
        record.lease_end = self._now() + record.lease
        record.checkpoint = body.get("checkpoint", record.checkpoint)
        left = round(record.lease * 1000)
        return httpx.Response(200, json={"id": claim, "status": "running", "expires_in_ms": left, "took_ms": 0})

    def _settle(self, claim: str, record: _Record, body: dict[str, Any]) -> httpx.Response:
        outcome = body["outcome"]
        if outcome == "retry":
            outcome = "doubt" if record.crash == "hold" else "release"
        states = {"complete": "completed", "fail": "failed", "release": "released", "doubt": "in_doubt"}
        if record.state not in ("running", states[outcome]):
            return _problem(409, "idempotency_lease_not_held")
        record.state = states[outcome]
        record.answer = body.get("answer", {})
        record.expires = self._now() + record.retention
        return httpx.Response(200, json=self._view(claim, record))

    def _look(self, claim: str) -> httpx.Response:
        record = self._live(claim)
        return _problem(404, "not_found") if record is None else httpx.Response(200, json=self._view(claim, record))

    def _view(self, claim: str, record: _Record, *, replayed: bool = False) -> dict[str, Any]:
        view = {"id": claim, "status": record.state, "replayed": replayed, "took_ms": 0, "fence": record.fence}
        view |= {"attempt": record.attempt, "original_time": "2026-01-01T00:00:00.000Z"}
        return view | ({"answer": record.answer} if record.state in ("completed", "failed") else {})


def _identity(*parts: str) -> str:
    """Of the form of the real ones; those have a server's secret in them."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _downstream_key(claim: str, name: str) -> str:
    return "semel-" + _identity(claim, name)[:32]


def _problem(status: int, code: str, *, retryable: bool = False, **more: Any) -> httpx.Response:
    document = {"type": f"urn:semel:problem:{code}", "title": code, "status": status, "detail": code, "code": code}
    document |= {"retryable": retryable, **more}
    return httpx.Response(status, json=document, headers={"Content-Type": "application/problem+json"})
