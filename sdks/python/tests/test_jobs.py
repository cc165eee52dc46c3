"""Jobs over the real server: enqueued once, whoever submits, through a bad network too."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from semel import AnswerNotKept, Conflict, EffectFailed, RetryBudget, RetryPolicy, new_key
from semel.jobs import AsyncQueue, Queue
from support.chaos import chaos
from support.servers import free_port, needs, python, sidecar

QUICK = RetryPolicy(max_attempts=60, base=0.01, cap=0.1, attempt_timeout=2.0, total_timeout=60)


@pytest.fixture(scope="module", params=["postgres", "s3"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """A sidecar with jobs, which need a store that has a queue beside its records."""
    variable = f"SEMEL_TEST_{request.param.upper()}_URL"
    url = needs(variable, f"cargo xtask services up {request.param}")
    url = url.replace("?endpoint", f"/sdk-{secrets.token_hex(6)}?endpoint")
    with sidecar("http://127.0.0.1:9", "--set", "jobs.enabled=true", store=url) as found:
        yield found


def kind() -> str:
    return f"sdk-{secrets.token_hex(6)}"


def worked(way: str, name: str, **outcome: Any) -> dict[str, Any]:
    """Takes one job of this kind and ends it, as a worker does."""
    base = f"{way}/mesh"
    body = {"worker": "w-1", "kinds": [name], "max_jobs": 10, "lease_ms": 30000, "wait_ms": 5000}
    jobs = httpx.post(f"{base}/lease", json=body, timeout=20).json()["jobs"]
    assert len(jobs) == 1, jobs
    how = "fail" if "error" in outcome else "complete"
    ended = {"lease_token": jobs[0]["lease_token"], **outcome}
    httpx.post(f"{base}/jobs/{jobs[0]['job_id']}/{how}", json=ended, timeout=20).raise_for_status()
    return dict(jobs[0])


def test_a_job_submitted_many_times_is_enqueued_once(way: str) -> None:
    name, key = kind(), new_key()
    with Queue(way, retry=QUICK) as queue:
        jobs = [queue.submit(name, {"b": 1, "a": 2}, idempotency_key=key, idempotency_ttl_days=30) for _ in range(3)]
        assert [job.status for job in jobs] == ["accepted", "in_progress", "in_progress"]
        assert [job.dedup for job in jobs] == [False, True, True]
        assert len({(job.id, job.request_id) for job in jobs}) == 1
        with pytest.raises(Conflict):
            queue.submit(name, {"a": 3}, idempotency_key=key)
        assert worked(way, name, result={"charge": "ch_1"})["params"] == {"b": 1, "a": 2}
        done = queue.wait(jobs[0].id)
        again = queue.submit(name, {"a": 2, "b": 1}, idempotency_key=key)
    assert (done.result, again.status, again.result) == ({"charge": "ch_1"}, "completed", {"charge": "ch_1"})


def test_a_key_is_kept_for_as_long_as_was_asked_for(way: str) -> None:
    name, brief, usual = kind(), new_key(), new_key()
    second = 1 / 86_400
    with Queue(way, retry=QUICK) as queue:
        first = queue.submit(name, 1, idempotency_key=brief, idempotency_ttl_days=second)
        worked(way, name, result=1)
        queue.submit(name, 2, idempotency_key=usual)
        worked(way, name, result=2)
        deadline = time.monotonic() + 60
        while (again := queue.submit(name, 1, idempotency_key=brief)).id == first.id:
            assert time.monotonic() < deadline, "the key is kept for longer"
            time.sleep(0.2)
        assert again.status == "accepted"
        assert queue.submit(name, 2, idempotency_key=usual).status == "completed"


def test_answers_up_to_16_kib_are_kept(way: str) -> None:
    name, keys = kind(), [new_key(), new_key()]
    most = "x" * (16 * 1024 - 2)  # The quotes make it 16 KiB.
    with Queue(way, retry=QUICK) as queue:
        for key, result in zip(keys, [most, most + "x"], strict=True):
            queue.submit(name, key, idempotency_key=key)
            worked(way, name, result=result)
        kept, omitted = (queue.submit(name, key, idempotency_key=key) for key in keys)
    assert kept.result == most
    assert omitted.status == "completed"
    with pytest.raises(AnswerNotKept):
        _ = omitted.result


def retention(admin: str, name: str) -> int:
    """Of the key's record, in milliseconds, as operators see it."""
    records = httpx.get(f"http://{admin}/admin/v1/records", params={"scope": f"job:{name}"}).json()["records"]
    assert len(records) == 1, records
    return int(records[0]["retention_ms"])


@pytest.mark.parametrize(("settings", "hours"), [([], 24), (["--set", "jobs.retention=2h"], 2)])
def test_keys_are_kept_for_a_day_or_as_the_settings_say(settings: list[str], hours: int) -> None:
    url = needs("SEMEL_TEST_POSTGRES_URL", "cargo xtask services up postgres")
    admin, name = f"127.0.0.1:{free_port()}", kind()
    more = ["--set", "jobs.enabled=true", "--set", f"admin.address={admin}", "--set", "admin.open=true", *settings]
    with sidecar("http://127.0.0.1:9", *more, store=url) as way, Queue(way, retry=QUICK) as queue:
        queue.submit(name, 1, idempotency_key=new_key())
        worked(way, name, result=1)
        assert retention(admin, name) == hours * 3_600_000


def test_a_job_that_failed_for_good_says_so(way: str) -> None:
    name = kind()
    with Queue(way, retry=QUICK) as queue:
        job = queue.submit(name, None)
        worked(way, name, error="no such customer", retryable=False)
        with pytest.raises(EffectFailed) as failed:
            _ = queue.wait(job.id).result
    assert failed.value.answer == "no such customer"


def test_without_a_key_each_submission_is_a_job_of_its_own(way: str) -> None:
    name = kind()
    with Queue(way, retry=QUICK) as queue:
        assert queue.submit(name, 1).id != queue.submit(name, 1).id


def lease(way: str, name: str) -> list[Any]:
    body = {"worker": "w-1", "kinds": [name], "max_jobs": 100, "lease_ms": 60000, "wait_ms": 0}
    return list(httpx.post(f"{way}/mesh/lease", json=body, timeout=20).json()["jobs"])


async def test_submissions_through_a_bad_network_are_enqueued_once(way: str) -> None:
    name = kind()
    with chaos(way, seed=int(os.environ.get("SEMEL_TEST_SEED", "7")), delay=2.5) as proxy:
        async with AsyncQueue(proxy.url, retry=QUICK, budget=RetryBudget(reserve=1e9)) as queue:
            # Half of them have no key of their own: a retry must not enqueue those twice either.
            jobs = await asyncio.gather(*(queue.submit(name, number) for number in range(100)))
            keyed = await asyncio.gather(
                *(queue.submit(name, number % 50, idempotency_key=f"{name}-{number % 50}") for number in range(100))
            )
    assert len({job.id for job in jobs}) == 100
    assert len({job.id for job in keyed}) == 50
    leased = await asyncio.to_thread(lambda: [len(found) for found in iter(lambda: lease(way, name), [])])
    assert sum(leased) == 150, "one job for each submission, however often it was sent"


def test_the_example(way: str) -> None:
    file = Path(__file__).parents[1] / "examples" / "queue_submit.py"
    process = python(str(file), env={"SIDECAR_URL": way}, stdout=-1)
    out, _ = process.communicate(timeout=60)
    assert out.decode().split() == ["accepted", "in_progress", "True"]
