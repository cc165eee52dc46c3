"""FastAPI, Django and Celery as they are, with the real sidecar on the real Redis. The apps are the examples."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from semel import new_key
from support.servers import free_port, postgres_url, python, redis_url, running, until_answered

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def fastapi(api: str) -> Iterator[str]:
    port = free_port()
    process = python(
        "-m", "uvicorn", "fastapi_app:app", "--port", str(port), "--log-level", "error", env={"SIDECAR_URL": api}
    )
    with running(process):
        url = f"http://127.0.0.1:{port}/charges"
        until_answered(url, process)
        yield url


@pytest.fixture(scope="module")
def django(api: str) -> Iterator[str]:
    port = free_port()
    process = python(str(EXAMPLES / "django_app.py"), str(port), env={"SIDECAR_URL": api})
    with running(process):
        url = f"http://127.0.0.1:{port}/charges"
        until_answered(url, process)
        yield url


def test_fastapi_without_a_sidecar_acts_once_over_its_processes(tmp_path: Path) -> None:
    charges, port = tmp_path / "charges", free_port()
    env = {"DATABASE_URL": postgres_url(), "CHARGES": str(charges)}
    command = ("-m", "uvicorn", "fastapi_alone:app", "--port", str(port), "--log-level", "error", "--workers", "2")
    process = python(*command, env=env, start_new_session=True)
    with running(process):
        until_answered(f"http://127.0.0.1:{port}/docs", process)
        url, key = f"http://127.0.0.1:{port}/charges", new_key()
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: post(url, {"order": key, "cents": 5}, key), range(16)))
        assert {(answer.status_code, answer.content) for answer in answers} == {(201, b'{"charged":5}')}
        assert [answer.headers.get("idempotent-replayed") for answer in answers].count("true") == 15
        assert post(url, {"order": key, "cents": 6}, key).json()["code"] == "idempotency_conflict"
        assert charges.read_text().splitlines() == [key]
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def test_django_without_a_sidecar(tmp_path: Path) -> None:
    port = free_port()
    store = {"SIDECAR_URL": f"sqlite://{tmp_path}/keys.db"}
    process = python(str(EXAMPLES / "django_app.py"), str(port), env=store)
    with running(process):
        url, key = f"http://127.0.0.1:{port}/charges", new_key()
        until_answered(url, process)
        answers = [post(url, {"order": key, "cents": 5}, key) for _ in range(3)]
        assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
        assert charged(url, key) == 1


def test_django_on_an_event_loop_acts_once_also_where_its_client_leaves(tmp_path: Path) -> None:
    port, charges = free_port(), tmp_path / "charges"
    env = {"STORE_URL": f"sqlite://{tmp_path}/keys.db", "CHARGES": str(charges)}
    process = python("-m", "uvicorn", "support.django_async:app", "--port", str(port), "--log-level", "error", env=env)
    with running(process):
        url, key = f"http://127.0.0.1:{port}/charges", new_key()
        until_answered(url, process)
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: post(url, {"order": key}, key), range(4)))
        assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
        left = new_key()
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json={"order": left}, headers={"Idempotency-Key": left}, timeout=0.3)
        again = post(url, {"order": left}, left)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
        assert charges.read_text().splitlines() == [key, left]


def post(url: str, body: Any, key: str | None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        named["Idempotency-Key"] = key
    return httpx.post(url, json=body, headers=named, timeout=30)


def charged(url: str, order: str) -> int:
    found = httpx.get(url).json()
    return sum(charge["order"] == order for charge in (found["charges"] if isinstance(found, dict) else found))


@pytest.mark.parametrize("framework", ["fastapi", "django"])
def test_a_request_sent_many_times_acts_once(framework: str, request: pytest.FixtureRequest) -> None:
    url, key = request.getfixturevalue(framework), new_key()
    order = {"order": key, "cents": 500}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: post(url, order, key), range(4)))
    answers.append(post(url, order, f'"{key}"'))
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert [answer.headers.get("idempotent-replayed") for answer in answers].count("true") == 4
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert charged(url, key) == 1


@pytest.mark.parametrize("framework", ["fastapi", "django"])
def test_another_payload_is_refused(framework: str, request: pytest.FixtureRequest) -> None:
    url, key = request.getfixturevalue(framework), new_key()
    assert post(url, {"order": key, "cents": 1}, key).status_code == 201
    refused = post(url, {"order": key, "cents": 2}, key)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_conflict")
    assert refused.headers["content-type"] == "application/problem+json"
    spaced = httpx.post(
        url,
        content=json.dumps({"cents": 1, "order": key}, indent=4),
        headers={"Idempotency-Key": key, "Content-Type": "application/json"},
    )
    assert spaced.headers["idempotent-replayed"] == "true", "JSON is compared by its meaning"


@pytest.mark.parametrize("framework", ["fastapi", "django"])
def test_a_key_that_cant_be_one_is_refused(framework: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(framework)
    refused = post(url, {"order": "x", "cents": 1}, "no spaces")
    assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_invalid")


def test_keys_of_two_users_never_meet(fastapi: str) -> None:
    key = new_key()
    answers = [post(fastapi, {"order": key, "cents": 1}, key, x_user=user) for user in ("ada", "bob", "ada")]
    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, None, "true"]
    assert charged(fastapi, key) == 2
    downstream = [charge["key"] for charge in httpx.get(fastapi).json() if charge["order"] == key]
    assert len(set(downstream)) == 2, "each has downstream keys of its own"


def test_other_credentials_are_another_payload(fastapi: str) -> None:
    key = new_key()
    first = post(fastapi, {"order": key, "cents": 1}, key, authorization="Bearer one")
    second = post(fastapi, {"order": key, "cents": 1}, key, authorization="Bearer two")
    assert (first.status_code, second.status_code) == (201, 422)


def test_a_final_refusal_is_replayed(fastapi: str) -> None:
    key = new_key()
    answers = [post(fastapi, {"order": key, "cents": -1}, key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[1].headers["idempotent-replayed"] == "true"
    assert answers[0].content == answers[1].content


def test_without_a_key_it_passes_or_is_refused(fastapi: str, django: str) -> None:
    order = {"order": new_key(), "cents": 1}
    assert [post(fastapi, order, None).status_code for _ in range(2)] == [201, 201]
    refused = post(django, order, None)
    assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_required")


def test_an_error_of_the_service_frees_the_key(django: str) -> None:
    key = new_key()
    for _ in range(2):
        assert post(django, {"order": key, "fail": True}, key).status_code == 500
    assert charged(django, key) == 2


def test_a_client_that_leaves_cuts_nothing(fastapi: str) -> None:
    key = new_key()
    order = {"order": key, "cents": 7}
    for _ in range(20):
        try:
            httpx.post(fastapi, json=order, headers={"Idempotency-Key": key}, timeout=0.004)
        except httpx.TransportError:
            continue
    assert post(fastapi, order, key).status_code == 201
    assert charged(fastapi, key) == 1


@pytest.fixture
def celery_env(api: str, tmp_path: Path) -> dict[str, str]:
    # A database of its own inside the test's Redis keeps queues of two runs apart.
    prefix = secrets.token_hex(4)
    return {
        "SIDECAR_URL": api,
        "BROKER_URL": redis_url(),
        "CHARGES": str(tmp_path / "charges"),
        "QUEUE": f"shop-{prefix}",
    }


def worker(env: dict[str, str]) -> Any:
    arguments = ["-m", "celery", "-A", "celery_app", "worker", "--pool", "prefork", "--concurrency", "4"]
    arguments += [
        "-Q",
        env["QUEUE"],
        "--loglevel",
        "error",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
    ]
    arguments += ["--hostname", f"{secrets.token_hex(4)}@test"]
    return python(*arguments, env=env, start_new_session=True, cwd=EXAMPLES)


def test_a_celery_task_delivered_twice_acts_once(celery_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in celery_env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import celery_app  # noqa: PLC0415

    charge = celery_app.charge
    charge.app.conf.update(broker_url=celery_env["BROKER_URL"], result_backend=celery_env["BROKER_URL"])
    process = worker(celery_env)
    try:
        orders = [new_key("") for _ in range(5)]
        sent = [charge.apply_async((order, 500, 0.2), queue=celery_env["QUEUE"]) for order in orders for _ in range(3)]
        results = [result.get(timeout=60) for result in sent]
        assert {result["order"] for result in results} == set(orders)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = Path(celery_env["CHARGES"]).read_text().split()
    assert sorted(done) == sorted(orders)


def test_a_task_of_a_killed_worker_is_done_by_the_next(
    celery_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in celery_env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import celery_app  # noqa: PLC0415

    charge, queue, order = celery_app.charge, celery_env["QUEUE"], new_key("")
    first = worker(celery_env)
    charges = Path(celery_env["CHARGES"])
    try:
        charge.apply_async((order, 500, 5.0), queue=queue)
        while not (charges.exists() and order in charges.read_text()):
            assert first.poll() is None
            time.sleep(0.05)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    second = worker(celery_env)
    try:
        # The same task, delivered again: it waits until the dead worker's lease has lapsed, and takes over.
        again = charge.apply_async((order, 500, 5.0), queue=queue)
        assert again.get(timeout=90) == {"order": order, "charged": 500}
        third = charge.apply_async((order, 500, 5.0), queue=queue)
        assert third.get(timeout=60) == {"order": order, "charged": 500}
    finally:
        os.killpg(second.pid, signal.SIGKILL)
        second.wait()
    assert charges.read_text().split() == [order, order], (
        "once more after the crash, as `takeover` says, and never again"
    )
