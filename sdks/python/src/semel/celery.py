"""Celery: tasks that are delivered at least once act once.

@app.task(acks_late=True)
@idempotent(once, "charge", key="charge-{order}")
def charge(order: str, cents: int) -> str: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import current_task
from celery.exceptions import Ignore, Reject, Retry

from ._claims import Terms
from ._tasks import Kind, decorator
from .worker import Decorator, Semel


def _task_id() -> str | None:
    found = current_task.request.id if current_task else None
    return None if found is None else str(found)


_KIND = Kind(_task_id, again=(Retry, Ignore, Reject))


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

    `self.retry()`, `Ignore` and `Reject` free the key, also under `hold`: by them a task says that it is to be run
    again, or was none. Put it below `@app.task`, on functions with `bind=True` too.
    """
    return decorator(_KIND, once, scope, key, payload, terms, encode, decode)
