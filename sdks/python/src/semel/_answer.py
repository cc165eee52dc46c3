"""What a caller gets: the answer, and what is known about it."""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from ._raw import keep_bytes
from .errors import Conflict, InDoubt, ProblemError
from .retry import Received, problem_of


@dataclass(frozen=True)
class Answer:
    """An answer that won't change by asking again: 2xx, 3xx, or a final 4xx."""

    response: httpx.Response
    key: str = field(repr=False)
    """Under which it was asked for: to be kept with the order. Empty for a request that had none."""
    attempts: int
    """How many it took."""

    @property
    def status(self) -> int:
        """The status."""
        return self.response.status_code

    @property
    def status_code(self) -> int:
        """The status, as httpx names it."""
        return self.response.status_code

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.response.status_code < 400

    @property
    def headers(self) -> httpx.Headers:
        """The headers, whatever the case of their names."""
        return self.response.headers

    @property
    def text(self) -> str:
        """The body, as text."""
        return self.response.text

    @property
    def replayed(self) -> bool:
        """Whether an earlier attempt did it, and this is its answer."""
        return bool(self.response.headers.get("idempotent-replayed") == "true")

    @property
    def original_time(self) -> str | None:
        """When it was first asked for, where this is a replay."""
        found: str | None = self.response.headers.get("x-original-request-time")
        return found

    @property
    def body_kept(self) -> bool:
        """`False` where it was done before and its body was too large to keep."""
        return "idempotent-not-kept" not in self.response.headers

    @property
    def content(self) -> bytes:
        """The body."""
        return self.response.content

    def json(self) -> Any:
        """The body, as JSON."""
        return json_module.loads(self.response.content)

    def raise_for_status(self) -> Answer:
        """Itself, or `httpx.HTTPStatusError` for 4xx and 5xx."""
        self.response.raise_for_status()
        return self


KINDS: dict[str, type[ProblemError]] = {
    "idempotency_conflict": Conflict,
    "idempotency_in_doubt": InDoubt,
    "idempotency_record_unreadable": InDoubt,
}


def problem_error(response: Received) -> ProblemError:
    """The error for a refusal."""
    problem = problem_of(response)
    code, claim = problem.get("code"), problem.get("claim")
    if isinstance(claim, dict):
        keep_bytes(claim, response.content, ("claim",))
    return KINDS.get(str(code), ProblemError)(response.status_code, problem)


def answer_of(response: httpx.Response, key: str, attempts: int) -> Answer:
    """The answer, or an error where Semel itself refused. What the service says, whatever it is, is an answer."""
    problem = problem_of(response)
    if response.status_code >= 400 and str(problem.get("code", "")).startswith("idempotency_"):
        raise problem_error(response)
    return Answer(response, key, attempts)
