"""A worker on the engine in its process, which is killed and started again: URL, environment, files, how many."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import semel
from semel import InDoubt, RetryPolicy, Terms


def main() -> None:
    url, environment, effects, answers, count, threads = sys.argv[1:]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    effects_file, answers_file = os.open(effects, flags, 0o600), os.open(answers, flags, 0o600)
    terms = Terms(crash="hold", lease=2.0, wait=10.0)
    retry = RetryPolicy(base=0.01, cap=0.2, total_timeout=240)

    def ask(once: semel.Semel, key: str) -> None:
        def effect(_: object) -> str:
            # One write to a file in append mode: a line is whole or not there.
            os.write(effects_file, f"{key}\n".encode())
            return f"answer of {key}"

        try:
            answer = once.run("work", key, effect, payload={"of": key}).value
        except InDoubt:
            answer = "in doubt"
        os.write(answers_file, json.dumps({"key": key, "answer": answer}).encode() + b"\n")

    with (
        semel.open(url, environment=environment, terms=terms, retry=retry) as once,
        ThreadPoolExecutor(int(threads)) as pool,
    ):
        # Each key twice, and the two next to each other.
        list(pool.map(lambda number: ask(once, f"k-{number // 2}"), range(2 * int(count))))


if __name__ == "__main__":
    main()
