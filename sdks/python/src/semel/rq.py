"""RQ: jobs that are started again act once.

@idempotent(once, "charge", key="charge-{order}")
def charge(order: str, cents: int) -> str: ...

queue.enqueue(charge, "ord-1", 500)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rq import Retry, get_current_job

from ._claims import Terms
from ._tasks import Kind, decorator
from .worker import Decorator, Semel


def _task_id() -> str | None:
    job = get_current_job()
    return None if job is None else str(job.id)


_KIND = Kind(_task_id, again_results=(Retry,))


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

    A job that returns `rq.Retry` frees the key, also under `hold`.
    """
    return decorator(_KIND, once, scope, key, payload, terms, encode, decode)
