"""A client process that is killed and started again until its orders are done: URL, outbox, results, how many."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from semel import Client, Outbox, RetryBudget, RetryPolicy
from semel.client import Call

POLICY = RetryPolicy(max_attempts=60, base=0.01, cap=0.1, attempt_timeout=1.0, total_timeout=120)


def main() -> None:
    url, outbox, results, count = sys.argv[1:]
    file = os.open(results, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    client = Client(url, retry=POLICY, budget=RetryBudget(reserve=1e9), outbox=Outbox(outbox))

    def keep(name: str, call: Call, content: bytes) -> None:
        # One write to a file in append mode: a line is whole or not there.
        line = {"order": name, "key": call.key, "receipt": json.loads(content)["receipt"]}
        os.write(file, json.dumps(line).encode() + b"\n")
        os.fsync(file)

    def finish(call: Call) -> None:
        with call:
            if call.sent:
                keep(call.name, call, call.send().content)

    def charge(order: str) -> None:
        with client.call(order) as call:
            keep(order, call, call.post("/charges", json={"order": order}).content)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(finish, client.pending()))
        done = {json.loads(line)["order"] for line in Path(results).read_bytes().splitlines()}
        todo = [f"restart-{number}" for number in range(int(count)) if f"restart-{number}" not in done]
        list(threads.map(charge, todo))


if __name__ == "__main__":
    main()
