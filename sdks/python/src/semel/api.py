"""The protocol API, call by call. Most programs want `Semel` or `AsyncSemel`, which are made of these."""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import httpx2 as httpx

from ._claims import NOTHING, claim_view, refuse
from ._send import Build, Reply, asend, send
from .api_types import AnswerInput, ClaimRequest, ClaimView, LookupRequest, Outcome, RenewView, SettleView
from .errors import LeaseLost, ProblemError
from .retry import Course, Received, RetryBudget, RetryPolicy, problem_of


def _is_lost(response: Received) -> bool:
    return response.status_code == 409 and problem_of(response).get("code") == "idempotency_lease_not_held"


def _check_way(url: str) -> None:
    """A token goes to another machine encrypted, or not at all. Who brings a client of their own decides themselves."""
    at = httpx.URL(url)
    if at.scheme != "http" or at.host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(at.host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        fix = "use https://, or give a client of your own as http="
        raise ValueError(f"the token would go to {at.host} in the clear: {fix}")


class Base:
    def __init__(
        self,
        url: str,
        token: str | None,
        retry: RetryPolicy | None,
        budget: RetryBudget | None,
        *,
        has_own_way: bool,
    ) -> None:
        if token and not has_own_way:
            _check_way(url)
        self.url = url.rstrip("/")
        self.retry = retry or RetryPolicy()
        self.budget = budget or RetryBudget()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def course(self, within: float | None = None) -> Course:
        policy, budget = self.retry, self.budget
        if within is not None:
            # What is worth doing only until a moment is tried as often as fits, whatever others have spent: to give up
            # a lease that lives is to do it twice.
            budget = RetryBudget(math.inf)
            policy = RetryPolicy(
                max_attempts=1_000_000,
                base=policy.base,
                cap=min(policy.cap, max(within / 4, 0.05)),
                attempt_timeout=min(policy.attempt_timeout, max(within / 2, 0.1)),
                total_timeout=max(within, 0.1),
            )
        return Course(policy, budget)


def content_of(path: str, body: Any, attempt: int) -> bytes:
    """The request's body on the wire."""
    # The server may look before it writes where it knows that this was asked before.
    again = {"retry": True} if attempt > 1 and path == "v1/claims" else {}
    return json.dumps({**body, **again}, ensure_ascii=False, allow_nan=False).encode()


def _build(
    http: httpx.Client | httpx.AsyncClient, base: str, headers: Mapping[str, str], method: str, path: str, body: Any
) -> Build:
    url = f"{base}/{path}"

    def build(attempt: int) -> httpx.Request:
        if body is None:
            return http.build_request(method, url, headers=headers)
        full = {**headers, "Content-Type": "application/json"}
        return http.build_request(method, url, headers=full, content=content_of(path, body, attempt))

    return build


def _claimed(reply: Reply[Any]) -> tuple[ClaimView, float]:
    view = claim_view(reply)
    if reply.unanswered_at is not None:
        # That one may have won, however long the server says it held this one: the lease is then as old as it (P30).
        return view, reply.unanswered_at
    return view, reply.sent_at + view["took_ms"] / 1000


def _look_path(claim_id: str, wait_ms: int | None) -> str:
    return f"v1/claims/{claim_id}" + ("" if wait_ms is None else f"?wait_ms={wait_ms}")


def _renewal(token: str, fence: int, checkpoint: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"token": token, "fence": fence}
    return body if checkpoint is NOTHING else {**body, "checkpoint": checkpoint}


def _settlement(token: str, fence: int, outcome: Outcome, answer: AnswerInput | None) -> dict[str, Any]:
    body: dict[str, Any] = {"token": token, "fence": fence, "outcome": outcome}
    return body if answer is None else {**body, "answer": answer}


def _renewed(reply: Reply[Any]) -> RenewView:
    if _is_lost(reply.response):
        raise LeaseLost("the lease is another's")
    refuse(reply.response)
    return cast(RenewView, json.loads(reply.response.content))


def _settled(reply: Reply[Any]) -> SettleView:
    refuse(reply.response)
    return cast(SettleView, json.loads(reply.response.content))


def _found(reply: Reply[Any]) -> ClaimView | None:
    return None if reply.response.status_code == 404 else claim_view(reply)


def _keys(reply: Reply[Any]) -> dict[str, str]:
    refuse(reply.response)
    return cast("dict[str, str]", json.loads(reply.response.content)["keys"])


class Api(Base):
    """For programs with threads."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(url, token, retry, budget, has_own_way=http is not None)
        self._http = http or httpx.Client()

    def send(self, method: str, path: str, body: Any = None, *, within: float | None = None) -> Reply[Any]:
        """One call, until there is an answer."""
        return send(self._http, _build(self._http, self.url, self._headers, method, path, body), self.course(within))

    def claim(self, request: ClaimRequest) -> tuple[ClaimView, float]:
        """Asks to be the one who runs. Also: from when `expires_in_ms` counts, on the monotonic clock."""
        return _claimed(self.send("POST", "v1/claims", request))

    def renew(
        self, claim_id: str, token: str, fence: int, *, checkpoint: Any = NOTHING, within: float | None = None
    ) -> tuple[RenewView, float]:
        """Keeps the lease, and a checkpoint with it. `LeaseLost` where it is another's."""
        path = f"v1/claims/{claim_id}/renew"
        reply = self.send("POST", path, _renewal(token, fence, checkpoint), within=within)
        return _renewed(reply), reply.sent_at

    def settle(
        self,
        claim_id: str,
        token: str,
        fence: int,
        outcome: Outcome,
        answer: AnswerInput | None = None,
        *,
        within: float | None = None,
    ) -> SettleView:
        """Says what became of the work. A `ProblemError` `idempotency_lease_not_held` where the lease was another's."""
        path = f"v1/claims/{claim_id}/settle"
        return _settled(self.send("POST", path, _settlement(token, fence, outcome, answer), within=within))

    def look(self, claim_id: str, *, wait_ms: int | None = None) -> ClaimView | None:
        """Where a claim stands; waits for its end up to `wait_ms`."""
        return _found(self.send("GET", _look_path(claim_id, wait_ms)))

    def lookup(self, request: LookupRequest) -> ClaimView | None:
        """The same, by key."""
        return _found(self.send("POST", "v1/lookups", request))

    def keys(self, claim_id: str, names: list[str]) -> dict[str, str]:
        """Keys for systems further down the road."""
        return _keys(self.send("POST", f"v1/claims/{claim_id}/keys", {"names": names}))

    def connect(self) -> None:
        """Nothing: each call connects."""

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()


class AsyncApi(Base):
    """For asyncio."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(url, token, retry, budget, has_own_way=http is not None)
        self._http = http or httpx.AsyncClient()

    async def send(self, method: str, path: str, body: Any = None, *, within: float | None = None) -> Reply[Any]:
        """As `Api.send`."""
        return await asend(
            self._http, _build(self._http, self.url, self._headers, method, path, body), self.course(within)
        )

    async def claim(self, request: ClaimRequest) -> tuple[ClaimView, float]:
        """As `Api.claim`."""
        return _claimed(await self.send("POST", "v1/claims", request))

    async def renew(
        self, claim_id: str, token: str, fence: int, *, checkpoint: Any = NOTHING, within: float | None = None
    ) -> tuple[RenewView, float]:
        """As `Api.renew`."""
        path = f"v1/claims/{claim_id}/renew"
        reply = await self.send("POST", path, _renewal(token, fence, checkpoint), within=within)
        return _renewed(reply), reply.sent_at

    async def settle(
        self,
        claim_id: str,
        token: str,
        fence: int,
        outcome: Outcome,
        answer: AnswerInput | None = None,
        *,
        within: float | None = None,
    ) -> SettleView:
        """As `Api.settle`."""
        path = f"v1/claims/{claim_id}/settle"
        return _settled(await self.send("POST", path, _settlement(token, fence, outcome, answer), within=within))

    async def look(self, claim_id: str, *, wait_ms: int | None = None) -> ClaimView | None:
        """As `Api.look`."""
        return _found(await self.send("GET", _look_path(claim_id, wait_ms)))

    async def lookup(self, request: LookupRequest) -> ClaimView | None:
        """As `Api.lookup`."""
        return _found(await self.send("POST", "v1/lookups", request))

    async def keys(self, claim_id: str, names: list[str]) -> dict[str, str]:
        """As `Api.keys`."""
        return _keys(await self.send("POST", f"v1/claims/{claim_id}/keys", {"names": names}))

    async def connect(self) -> None:
        """As `Api.connect`."""

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


__all__ = ["Api", "AsyncApi", "ProblemError"]
