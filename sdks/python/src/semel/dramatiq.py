"""Dramatiq: messages that are delivered at least once act once.

@dramatiq.actor
@idempotent(once, "charge", key="charge-{order}")
def charge(order: str, cents: int) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dramatiq.errors import Retry
from dramatiq.middleware import CurrentMessage

from ._claims import Terms
from ._tasks import Kind, decorator
from .worker import Decorator, Semel


def _task_id() -> str | None:
    message = CurrentMessage.get_current_message()
    return None if message is None else str(message.message_id)


_KIND = Kind(_task_id, again=(Retry,))


def idempotent(
    once: Semel,
    scope: str,
    *,
    key: str | Callable[..., str] | None = None,
    payload: Callable[..., Any] | None = None,
    terms: Terms | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
) -> Decorator:
    """As `Semel.idempotent`. Without a `key`, it is the task's id: the same on each delivery and retry of one task.

    `dramatiq.errors.Retry` frees the key, also under `hold`. Put it below `@dramatiq.actor`. Without a `key`, the
    broker needs the middleware `CurrentMessage`: else the function runs as it is.
    """
    return decorator(_KIND, once, scope, key, payload, terms, encode, decode)
