"""Sent many times, done once, answered the same every time.

`Client` and `AsyncClient` call a service that knows idempotency keys: the key is made once, kept, and the request sent
again until there is an answer. `open` and `open_async` make functions run once, on a store in this process or over the
protocol API of a sidecar.
"""

from ._answer import Answer
from ._claims import NOTHING, Terms
from ._fingerprint import fingerprint_of
from ._lease import Result
from ._open import StoreSettings, open, open_async  # noqa: A004
from .aworker import AsyncLease, AsyncSemel, current_async_lease
from .client import AsyncClient, Client
from .errors import (
    AnswerNotKept,
    AnswerUnreadable,
    CallChanged,
    Conflict,
    EffectFailed,
    Final,
    GaveUp,
    InDoubt,
    KeyInvalid,
    LeaseLost,
    NoEffect,
    OpenError,
    PayloadInvalid,
    ProblemError,
    SemelError,
    Unknown,
    Unrecorded,
)
from .keys import check_key, new_key
from .outbox import Outbox
from .retry import RetryBudget, RetryEvent, RetryPolicy
from .worker import Lease, Semel, current_lease

__all__ = [
    "NOTHING",
    "Answer",
    "AnswerNotKept",
    "AnswerUnreadable",
    "AsyncClient",
    "AsyncLease",
    "AsyncSemel",
    "CallChanged",
    "Client",
    "Conflict",
    "EffectFailed",
    "Final",
    "GaveUp",
    "InDoubt",
    "KeyInvalid",
    "Lease",
    "LeaseLost",
    "NoEffect",
    "OpenError",
    "Outbox",
    "PayloadInvalid",
    "ProblemError",
    "Result",
    "RetryBudget",
    "RetryEvent",
    "RetryPolicy",
    "Semel",
    "SemelError",
    "StoreSettings",
    "Terms",
    "Unknown",
    "Unrecorded",
    "check_key",
    "current_async_lease",
    "current_lease",
    "fingerprint_of",
    "new_key",
    "open",
    "open_async",
]
