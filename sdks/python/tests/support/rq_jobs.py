"""A job that RQ imports by its name."""

from __future__ import annotations

import semel.rq
from semel.testing import FakeSemel

fake = FakeSemel()
runs: list[int] = []


@semel.rq.idempotent(fake.semel(), "charge")
def charge() -> int:
    runs.append(1)
    return len(runs)
