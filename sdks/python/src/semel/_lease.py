"""What a lease knows, whoever renews it."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

from ._claims import Terms
from .api_types import ClaimView, LeaseView, RenewView
from .errors import LeaseLost, SemelError
from .retry import RetryEvent, tell

T = TypeVar("T")


class LeaseState:
    """The right to run, until a time, on this process's monotonic clock."""

    def __init__(self, view: ClaimView, since: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        lease: LeaseView = view["lease"]
        self.id: str = view["id"]
        """The claim's id: for logs, and for an operator."""
        self.fence: int = lease["fence"]
        """Larger than that of any earlier lease of the key: whoever keeps the highest can refuse a lower one."""
        self.attempt: int = lease["attempt"]
        """1, or more where earlier owners vanished."""
        self.last_checkpoint: Any = lease.get("checkpoint")
        """What the last owner kept, where it vanished after that."""
        self.renew_every: float = lease["renew_every_ms"] / 1000
        self.lost = False
        """Whether another is known to have it."""
        self._token = lease["token"]
        self._keys: dict[str, str] = dict(lease.get("downstream_keys", {}))
        self._clock = clock
        self._deadline = since + lease["expires_in_ms"] / 1000

    def __repr__(self) -> str:
        return f"<lease of {self.id[:8]}, fence {self.fence}, attempt {self.attempt}>"

    @property
    def remaining(self) -> float:
        """Seconds in which something may still be started; 0 or less where it is over."""
        return 0.0 if self.lost else self._deadline - self._clock()

    def check(self) -> None:
        """`LeaseLost` where nothing more may be started: to be asked before each step that can't be undone."""
        if self.remaining <= 0:
            raise LeaseLost("the lease is another's" if self.lost else "the lease is past its deadline")

    def _pause(self) -> float:
        """Until the next renewal: a third of the lease, and sooner where the last answer came late (P31).

        Never at once: a server that refuses every renewal would be asked in a loop.
        """
        left = self.remaining
        least = self.renew_every / 10
        return min(self.renew_every, max(least, left - self.renew_every)) if left > 0 else self.renew_every

    def _told_lost(self, on_event: Callable[[RetryEvent], object] | None) -> None:
        if not self.lost:
            self.lost = True
            tell(on_event, RetryEvent("lease_lost", 0, reason=f"the claim {self.id[:8]} is another's"))

    def _prolong(self, view: RenewView, sent_at: float) -> None:
        self._deadline = max(self._deadline, sent_at + (view["took_ms"] + view["expires_in_ms"]) / 1000)


class Result(Generic[T]):
    """What became of an operation."""

    def __init__(self, value: T, view: ClaimView | None, *, replayed: bool) -> None:
        self.value = value
        """What the effect returned, now or in an earlier run."""
        self.replayed = replayed
        """Whether an earlier run answered."""
        self.original_time: str | None = view.get("original_time") if view else None
        """When the key was first claimed."""
        self.attempt: int | None = view.get("attempt") if view else None
        """Runs begun since the key was last free."""

    def __repr__(self) -> str:
        return f"<result, {'replayed' if self.replayed else 'run now'}>"


CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("semel-lease")
"""The lease under which code runs; `None` where nothing is enforced."""

_NOWHERE = object()


def current(kind: type[T], other: str) -> T | None:
    """The lease of this kind under which the code that asks is running."""
    found = CURRENT.get(_NOWHERE)
    if found is None or isinstance(found, kind):
        return found
    if found is _NOWHERE:
        raise SemelError("nothing here runs under a key: a lease is for code under idempotent, run or operation")
    raise SemelError(f"this runs under a lease of the other kind: ask {other}()")


@contextlib.contextmanager
def running_under(lease: object) -> Iterator[None]:
    """For the code inside, `lease` is the current one."""
    mark = CURRENT.set(lease)
    try:
        yield
    finally:
        CURRENT.reset(mark)


@contextlib.contextmanager
def naming(key: str) -> Iterator[None]:
    """Errors of this package say by `key` what to ask for again."""
    try:
        yield
    except SemelError as error:
        if error.key is None:
            error.key = key
        raise


def merged(terms: Terms | None, default: Terms) -> Terms:
    """The operation's own, and for what they leave out, those of all."""
    if terms is None:
        return default
    given = {field.name: getattr(terms, field.name) for field in fields(Terms)}
    return replace(default, **{name: value for name, value in given.items() if value is not None})
