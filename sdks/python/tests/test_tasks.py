"""Celery, Dramatiq and RQ: what is delivered twice acts once, and what asks to be run again is."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import celery
import dramatiq
import pytest
import redis
import rq
from celery.exceptions import Ignore, Reject, Retry
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import CurrentMessage

import semel.celery
import semel.dramatiq
import semel.rq
from semel import Conflict, Semel, Terms
from semel.testing import FakeSemel
from support import rq_jobs
from support.servers import redis_url

HOLD = Terms(crash="hold")


@pytest.fixture
def fake() -> FakeSemel:
    """A server in memory."""
    return FakeSemel()


@pytest.fixture
def once(fake: FakeSemel) -> Semel:
    """For money: an unknown error leaves the key in doubt."""
    return fake.semel(terms=HOLD)


def app() -> Any:
    made = celery.Celery("test", broker="memory://", backend="cache+memory://")
    made.conf.task_store_eager_result = True
    return made


def test_a_task_of_celery_acts_once_for_each_key(fake: FakeSemel, once: Semel) -> None:
    runs: list[int] = []

    @app().task  # type: ignore[untyped-decorator]
    @semel.celery.idempotent(once, "charge", key="charge-{order}")
    def charge(order: str, cents: int = 5) -> dict[str, int]:
        runs.append(cents)
        return {"charged": cents}

    given = [charge.apply(args=("o-1",)), charge.apply(kwargs={"order": "o-1", "cents": 5})]
    assert [result.get() for result in given] == [{"charged": 5}] * 2
    assert charge("o-1") == {"charged": 5}
    assert (runs, fake.state("charge", "charge-o-1")) == ([5], "completed")
    with pytest.raises(Conflict):
        charge("o-1", 6)


def test_without_a_key_a_task_of_celery_acts_once_for_each_delivery(fake: FakeSemel, once: Semel) -> None:
    runs: list[str] = []

    @app().task  # type: ignore[untyped-decorator]
    @semel.celery.idempotent(once, "charge")
    def charge(order: str) -> str:
        runs.append(order)
        return order

    for task_id in ("t-1", "t-1", "t-2"):
        assert charge.apply(args=("o",), task_id=task_id).get() == "o"
    assert (runs, fake.state("charge", "t-1")) == (["o", "o"], "completed")
    charge("o")
    charge("o")
    assert len(runs) == 4, "called as a function, it is one"


def test_a_task_that_retries_itself_runs_again_under_its_key(fake: FakeSemel, once: Semel) -> None:
    states: list[str | None] = []

    @app().task(bind=True, max_retries=3)  # type: ignore[untyped-decorator]
    @semel.celery.idempotent(once, "charge")
    def charge(self: Any, order: str) -> int:
        states.append(fake.state("charge", "t-1"))
        if len(states) < 3:
            raise self.retry(countdown=0)
        return len(states)

    assert charge.apply(args=("o",), task_id="t-1").get() == 3
    assert states == ["running"] * 3
    assert fake.state("charge", "t-1") == "completed"


@pytest.mark.parametrize("error", [Retry(), Ignore(), Reject(requeue=True)], ids=lambda error: type(error).__name__)
def test_what_celery_means_by_an_error_frees_the_key(fake: FakeSemel, once: Semel, error: Exception) -> None:
    @semel.celery.idempotent(once, "charge", key="{order}")
    def charge(order: str) -> None:
        raise error

    with pytest.raises(type(error)):
        charge("o-1")
    assert fake.state("charge", "o-1") == "released"


def test_another_error_follows_the_terms(fake: FakeSemel, once: Semel) -> None:
    @semel.celery.idempotent(once, "charge", key="{order}", terms=Terms(no_effect=(KeyError,)))
    def charge(order: str) -> None:
        raise KeyError if order == "o-1" else ZeroDivisionError

    for order, state in (("o-1", "released"), ("o-2", "in_doubt")):
        with pytest.raises((KeyError, ZeroDivisionError)):
            charge(order)
        assert fake.state("charge", order) == state


@pytest.fixture
def broker() -> Iterator[StubBroker]:
    """In memory, and with the middleware that knows the message."""
    broker = StubBroker()
    broker.add_middleware(CurrentMessage())
    broker.emit_after("process_boot")
    yield broker
    broker.close()


def test_a_message_of_dramatiq_acts_once(fake: FakeSemel, once: Semel, broker: StubBroker) -> None:
    runs: list[str] = []

    @dramatiq.actor(broker=broker)
    @semel.dramatiq.idempotent(once, "charge", key="charge-{order}")
    def charge(order: str) -> None:
        runs.append(order)

    @dramatiq.actor(broker=broker)
    @semel.dramatiq.idempotent(once, "mail")
    def mail(user: str) -> None:
        runs.append(user)
        if runs.count(user) < 2:
            raise dramatiq.errors.Retry(delay=1)

    sent = mail.send("ada")
    broker.enqueue(charge.send("o-1"))
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    try:
        for queue in (charge.queue_name, mail.queue_name):
            broker.join(queue, timeout=20_000)
        worker.join()
    finally:
        worker.stop()
    assert sorted(runs) == ["ada", "ada", "o-1"]
    assert (fake.state("charge", "charge-o-1"), fake.state("mail", sent.message_id)) == ("completed", "completed")


def test_without_the_message_a_function_of_dramatiq_is_one(once: Semel) -> None:
    @semel.dramatiq.idempotent(once, "mail")
    def mail(user: str) -> str:
        return user

    assert [mail("ada"), mail("ada")] == ["ada", "ada"]


def test_a_job_of_rq_acts_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    charges = tmp_path / "charges"
    settings = {"STORE_URL": f"sqlite://{tmp_path}/keys.db", "CHARGES": str(charges), "BROKER_URL": redis_url()}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    example = importlib.import_module("rq_app")
    connection = redis.Redis.from_url(redis_url())
    queue = rq.Queue(f"semel-{secrets.token_hex(4)}", connection=connection)
    jobs = [queue.enqueue(example.charge, "o-1", 500) for _ in range(2)]
    jobs.append(queue.enqueue(example.charge, "o-2", 20_000))
    rq.SimpleWorker([queue], connection=connection).work(burst=True, logging_level="ERROR")
    assert [job.return_value() for job in jobs[:2]] == ["charged o-1"] * 2
    assert charges.read_text().splitlines() == ["o-1"]
    retried = jobs[2]
    assert retried.get_status(refresh=True) in (rq.job.JobStatus.SCHEDULED, rq.job.JobStatus.QUEUED)
    assert example.once.api.lookup({"scope": "charge", "key": "charge-o-2"})["status"] == "released"
    retried.delete()
    example.once.close()


def test_without_a_key_a_job_of_rq_acts_once_for_each_delivery() -> None:
    assert [rq_jobs.charge(), rq_jobs.charge()] == [1, 2], "called as a function, it is one"
    job = rq.job.Job.create(rq_jobs.charge, connection=redis.Redis.from_url(redis_url()))
    assert [job.perform(), job.perform()] == [3, 3]
    assert rq_jobs.fake.state("charge", job.id) == "completed"


def test_the_example_of_dramatiq(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    charges = tmp_path / "charges"
    settings = {"STORE_URL": f"sqlite://{tmp_path}/keys.db", "CHARGES": str(charges), "BROKER_URL": redis_url()}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    example = importlib.import_module("dramatiq_app")
    example.charge("o-1", 5)
    example.charge(cents=5, order="o-1")
    assert charges.read_text().splitlines() == ["o-1 5"]
    example.once.close()
