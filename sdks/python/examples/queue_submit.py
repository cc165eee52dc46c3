"""A job that is submitted twice and enqueued once."""

import os

from semel.jobs import Job, Queue

queue = Queue(os.environ["SIDECAR_URL"])  # http://127.0.0.1:8080


def order_charge(order: str, cents: int) -> Job:
    return queue.submit(
        "charge_customer",
        {"order": order, "cents": cents},
        idempotency_key=f"charge-{order}",
        idempotency_ttl_days=30,
    )


if __name__ == "__main__":
    first, again = order_charge("ORD-123", 100), order_charge("ORD-123", 100)
    print(first.status, again.status, first.id == again.id)
