"""Celery delivers at least once; with this, a task delivered twice acts once."""

import os
import time
from typing import Any

from celery import Celery

from semel import RetryPolicy, Semel, Terms
from semel.celery import idempotent

app = Celery("shop", broker=os.environ["BROKER_URL"], backend=os.environ["BROKER_URL"])
# A worker that dies leaves its task to the next one.
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
once = Semel(os.environ["SIDECAR_URL"], terms=Terms(lease=2), retry=RetryPolicy(total_timeout=30))


@app.task(name="shop.charge")  # type: ignore[untyped-decorator]
@idempotent(once, "charge", key="charge-{order}")
def charge(order: str, cents: int, seconds: float = 0.0) -> dict[str, Any]:
    with open(os.environ["CHARGES"], "a") as charges:  # noqa: PTH123
        charges.write(f"{order}\n")
    time.sleep(seconds)
    return {"order": order, "charged": cents}
