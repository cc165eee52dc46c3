"""RQ starts a job again whose worker died; with this, it acts once: `rq worker`, then `rq_app.order("ord-1", 500)`."""

import os

from redis import Redis
from rq import Queue, Retry
from rq.job import Job

import semel
from semel import Terms
from semel.rq import idempotent

once = semel.open(os.environ["STORE_URL"], terms=Terms(crash="hold"))


@idempotent(once, "charge", key="charge-{order}")
def charge(order: str, cents: int) -> str | Retry:
    if cents > 10_000:
        return Retry(max=3, interval=60)  # nothing was charged: the key is free again, and the job comes again
    with open(os.environ["CHARGES"], "a") as charges:  # noqa: PTH123
        charges.write(f"{order}\n")
    return f"charged {order}"


def order(name: str, cents: int) -> Job:
    return Queue(connection=Redis.from_url(os.environ["BROKER_URL"])).enqueue(charge, name, cents)
