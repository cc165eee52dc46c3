"""Calls through a network that drops, delays, duplicates and truncates: every effect once, one key for each call."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2 as httpx

from semel import AsyncClient, AsyncLease, AsyncSemel, RetryBudget, RetryPolicy, new_key
from support.chaos import FAULTS, chaos
from support.servers import payments, python, sidecar

SEED = int(os.environ.get("SEMEL_TEST_SEED", "7"))
CALLS = 2000
POLICY = RetryPolicy(max_attempts=60, base=0.01, cap=0.1, attempt_timeout=1.0, total_timeout=120)


async def test_two_thousand_calls_act_once_each() -> None:
    with payments() as service, sidecar(service.url) as way, chaos(way, seed=SEED, delay=1.5) as proxy:
        turns = asyncio.Semaphore(32)

        async def call(client: AsyncClient, order: str) -> tuple[str, Any]:
            async with turns:
                answer = await client.post("/charges", json={"order": order})
                return order, answer

        async with AsyncClient(proxy.url, retry=POLICY, budget=RetryBudget(reserve=1e9)) as client:
            answers = await asyncio.gather(*(call(client, f"order-{number}") for number in range(CALLS)))
        assert all(proxy.faults[fault] > 0 for fault in FAULTS), f"seed {SEED}: {proxy.faults}"
        assert set(service.effects.values()) == {1}, f"seed {SEED}: {service.effects.most_common(3)}"
        assert len(service.effects) == CALLS
        for order, answer in answers:
            assert (answer.status, answer.json()["receipt"]) == (201, service.receipts[order])
        assert len(proxy.keys) == CALLS
        assert all(len(keys) == 1 for keys in proxy.keys.values()), "one key for all attempts of a call"
        attempts = sum(answer.attempts for _, answer in answers)
        assert attempts > CALLS * 1.3, "the faults were met"
        print(f"{CALLS} calls, {attempts} attempts, {proxy.requests} requests, {dict(proxy.faults)}")  # noqa: T201


async def test_a_client_that_makes_keys_anew_is_caught() -> None:
    """The seeded bug: what the other tests look for can be seen."""
    with payments() as service, sidecar(service.url) as way, chaos(way, seed=SEED, delay=0.2) as proxy:
        async with httpx.AsyncClient(base_url=proxy.url, timeout=1.0) as http:
            for number in range(100):
                for _ in range(60):
                    try:
                        order, headers = {"order": f"order-{number}"}, {"Idempotency-Key": new_key()}
                        await http.post("/charges", json=order, headers=headers)
                        break
                    except httpx.TransportError:
                        continue
        assert max(service.effects.values()) > 1
        assert max(len(keys) for keys in proxy.keys.values()) > 1


def test_keys_survive_a_client_that_is_killed(tmp_path: Path) -> None:
    count, chance = 300, random.Random(SEED)
    results = tmp_path / "results"
    with payments() as service, sidecar(service.url) as way, chaos(way, seed=SEED, delay=1.5) as proxy:
        kills = 0
        while True:
            arguments = [proxy.url, str(tmp_path / "outbox"), str(results), str(count)]
            child = python("-m", "support.chaos_child", *arguments)
            # Spared after a dozen, so that it gets to an end; before, no life is long enough for that.
            limit = time.monotonic() + (0.4 + chance.random() * 0.6 if kills < 12 else 300)
            while child.poll() is None and time.monotonic() < limit:
                time.sleep(0.01)
            if child.poll() is not None:
                break
            child.kill()
            child.wait()
            kills += 1
        assert child.returncode == 0
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        assert kills >= 5, "it was killed in the middle"
        assert set(service.effects.values()) == {1}, f"seed {SEED}: {service.effects.most_common(3)}"
        assert {line["order"]: line["receipt"] for line in lines} == service.receipts
        assert len(service.receipts) == count
        assert all(len(keys) == 1 for keys in proxy.keys.values()), "one key over all processes"
        assert list((tmp_path / "outbox").glob("*.call")) == []


async def test_a_worker_behind_such_a_network_runs_each_effect_once() -> None:
    effects: Counter[str] = Counter()
    with sidecar() as way, chaos(way, seed=SEED, delay=1.5) as proxy:
        turns = asyncio.Semaphore(16)

        async def work(semel: AsyncSemel, key: str) -> tuple[str, int]:
            async def effect(_: AsyncLease | None) -> int:
                effects[key] += 1
                await asyncio.sleep(0.005)
                return effects[key]

            async with turns:
                return key, (await semel.run("work", key, effect, payload={"of": key})).value

        async with AsyncSemel(f"{proxy.url}/_semel", retry=POLICY, budget=RetryBudget(reserve=1e9)) as semel:
            keys = [f"work-{number // 2}" for number in range(600)]
            values = await asyncio.gather(*(work(semel, key) for key in keys))
    assert len(effects) == 300
    assert set(effects.values()) == {1}, f"seed {SEED}: {effects.most_common(3)}"
    assert {value for _, value in values} == {1}
    assert all(proxy.faults[fault] > 0 for fault in FAULTS)
