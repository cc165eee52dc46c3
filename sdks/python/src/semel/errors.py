"""What can go wrong, in three meanings: it did not happen, it happened, nobody knows.

Errors never carry keys in full, payloads or tokens: they end up in logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2 as httpx


class SemelError(Exception):
    """The root of them all."""

    key: str | None = None
    """The key that was asked for, where there was one. It is in no message: keys don't belong into logs."""


class OpenError(SemelError):
    """A store that can't be opened: the message says what is wrong and what to do."""


class KeyInvalid(SemelError, ValueError):
    """A text that can't be a key: `reason` is `empty`, `too_long` or `character` (rule P1)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the key can't be used: {reason}")
        self.reason = reason


class PayloadInvalid(SemelError, ValueError):
    """A payload that can't be compared: `reason` is `duplicate`, `number`, `depth` or `syntax` (rule P3)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the payload can't be fingerprinted as JSON: {reason}")
        self.reason = reason


class ProblemError(SemelError):
    """The server refused, with a problem document (RFC 9457). Asking again gets the same refusal."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code", ""))
        self.claim_id: str | None = problem.get("claimId")
        detail = problem.get("detail") or problem.get("title") or "the server refused"
        super().__init__(f"{self.code or status}: {detail}")


class Conflict(ProblemError):
    """The key was used with another payload. A bug in the caller: nothing was done, and a retry won't help."""


class InDoubt(ProblemError):
    """Whether an earlier run took effect is not known. It isn't run again until an operator resolves it."""


class LeaseLost(SemelError):
    """The lease is another's, or past its deadline: start nothing more. Nothing was recorded."""


class GaveUp(SemelError):
    """Every attempt failed, or the budget or the time ran out.

    `unknown` says whether the request may have taken effect all the same. To find out, ask again with the same `key`.
    """

    def __init__(
        self,
        key: str | None,
        attempts: int,
        *,
        reason: str,
        unknown: bool,
        response: httpx.Response | None = None,
    ) -> None:
        known = "it may have taken effect" if unknown else "it was not done"
        super().__init__(f"gave up after {attempts} attempt(s), {reason}; {known}")
        self.key = key
        self.attempts = attempts
        self.reason = reason
        self.unknown = unknown
        self.response = response


class CallChanged(SemelError):
    """A call of this name is in the outbox with another request, or it is another call by now."""


class EffectFailed(SemelError):
    """The effect failed for good, now or in an earlier run: `answer` is the failure that was kept."""

    def __init__(self, answer: Any, *, replayed: bool) -> None:
        super().__init__("the effect failed for good" + (", in an earlier run" if replayed else ""))
        self.answer = answer
        self.replayed = replayed


class AnswerNotKept(SemelError):
    """It was done, and its answer was not kept: it was too large, or no JSON."""

    def __init__(self, size: int, *, value: Any = None, reason: str | None = None) -> None:
        if reason is not None:
            told = f"done, and its answer was not kept: {reason}; give encode= and decode="
        else:
            told = "done before; its answer was not kept" + (f", it had {size} bytes" if size else "")
        super().__init__(told)
        self.size = size
        self.value = value
        """What the effect returned, for the caller that ran it."""


_GONE = frozenset({"idempotency_answer_erased", "idempotency_answer_expired"})


def answer_is_gone(error: BaseException) -> bool:
    """Whether it was done, and its answer was not kept, or no longer."""
    return isinstance(error, AnswerNotKept) or (isinstance(error, ProblemError) and error.code in _GONE)


class AnswerUnreadable(SemelError):
    """It was done, and the answer that is kept isn't of the type that the function says it returns."""

    def __init__(self, wanted: str) -> None:
        super().__init__(f"done, and the answer that was kept can't be read as {wanted}")


class Unrecorded(SemelError):
    """The effect happened, and that could not be recorded. `value` is what it returned.

    After the lease has lapsed, the next claim runs it again (`takeover`) or finds it in doubt (`hold`).
    """

    def __init__(self, value: Any) -> None:
        super().__init__("the effect ran, and its outcome could not be recorded")
        self.value = value


class NoEffect(SemelError):
    """For effects to raise: it failed before anything happened. The key is free again."""


class Unknown(SemelError):
    """For effects to raise: it was sent, and no reply came. The key is in doubt until resolved."""


class Final(SemelError):
    """For effects to raise: it failed for good. `answer` is kept, and given to everybody who asks again."""

    def __init__(self, answer: Any) -> None:
        super().__init__("the effect failed for good")
        self.answer = answer
