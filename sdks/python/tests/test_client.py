"""The client against the real sidecar, and what it does with each kind of answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx2 as httpx
import pytest

from semel import AsyncClient, Client, Conflict, GaveUp, InDoubt, Outbox, RetryBudget, RetryPolicy, new_key
from semel._raw import member_text
from semel.retry import Course, Verdict, judge, problem_of, retry_after
from support.servers import Payments, free_port

QUICK = RetryPolicy(base=0.01, cap=0.05, attempt_timeout=5, total_timeout=20)


def test_one_key_for_all_attempts_and_a_replay_for_the_second_call(sidecar: str, payments: Payments) -> None:
    key = new_key()
    with Client(sidecar, retry=QUICK) as client:
        first = client.post("/charges", json={"order": key}, key=key)
        again = client.post("/charges", json={"order": key}, key=key)
    assert (first.status, first.replayed, again.replayed) == (201, False, True)
    assert first.content == again.content
    assert again.original_time is not None
    assert payments.effects[key] == 1


async def test_the_same_with_asyncio(sidecar: str, payments: Payments) -> None:
    key = new_key()
    async with AsyncClient(sidecar, retry=QUICK) as client:
        answers = await asyncio.gather(*(client.post("/charges", json={"order": key}, key=key) for _ in range(5)))
    assert {answer.content for answer in answers} == {answers[0].content}
    assert sorted(answer.replayed for answer in answers) == [False, True, True, True, True]
    assert payments.effects[key] == 1


def test_a_conflict_is_told_and_not_retried(sidecar: str) -> None:
    key, budget = new_key(), RetryBudget()
    with Client(sidecar, retry=QUICK, budget=budget) as client:
        client.post("/charges", json={"order": key}, key=key)
        before = budget.left
        with pytest.raises(Conflict) as refused:
            client.post("/charges", json={"order": "another"}, key=key)
    assert (refused.value.status, refused.value.code) == (422, "idempotency_conflict")
    assert budget.left >= before
    assert key not in str(refused.value)


def test_the_services_own_refusal_is_an_answer(sidecar: str, payments: Payments) -> None:
    key = new_key()
    with Client(sidecar, retry=QUICK) as client:
        for replayed in (False, True):
            answer = client.post("/charges", json={"order": key, "status": 402}, key=key)
            assert (answer.status, answer.replayed) == (402, replayed)
            with pytest.raises(httpx.HTTPStatusError):
                answer.raise_for_status()
    assert payments.effects[key] == 1


def test_nobody_there_is_known_to_have_done_nothing() -> None:
    policy = RetryPolicy(max_attempts=3, base=0.001, cap=0.002, attempt_timeout=2, total_timeout=20)
    with Client(f"http://127.0.0.1:{free_port()}", retry=policy) as client, pytest.raises(GaveUp) as gave_up:
        client.post("/charges", json={})
    assert (gave_up.value.attempts, gave_up.value.unknown) == (3, False)
    assert gave_up.value.key


Script = Callable[[BaseHTTPRequestHandler, int], None]


@contextmanager
def scripted(script: Script) -> Iterator[tuple[str, list[str | None]]]:
    """A server that answers by attempt; also gives the keys it saw."""
    keys: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            script(self, len(keys))

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", keys
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def say(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def problem(handler: BaseHTTPRequestHandler, status: int, **members: object) -> None:
    say(handler, status, json.dumps(members).encode(), Content_Type="application/problem+json")


def test_in_flight_is_asked_again_and_doesnt_count() -> None:
    def script(handler: BaseHTTPRequestHandler, attempt: int) -> None:
        if attempt < 12:
            problem(handler, 409, code="idempotency_in_flight", retryable=True, retryAfterMs=1)
        else:
            say(handler, 201)

    policy = RetryPolicy(max_attempts=2, base=0.001, cap=0.001, total_timeout=30)
    with scripted(script) as (url, keys), Client(url, retry=policy) as client:
        answer = client.post("/", json={})
    assert (answer.status, answer.attempts) == (201, 12)
    assert set(keys) == {answer.key}


@pytest.mark.parametrize(("status", "code"), [(409, "idempotency_in_doubt"), (500, "idempotency_record_unreadable")])
def test_in_doubt_is_told_and_not_retried(status: int, code: str) -> None:
    def script(handler: BaseHTTPRequestHandler, _: int) -> None:
        problem(handler, status, code=code, retryable=False)

    with scripted(script) as (url, keys), Client(url, retry=QUICK) as client, pytest.raises(InDoubt):
        client.post("/", json={})
    assert len(keys) == 1


def test_a_plain_409_is_an_answer_unless_it_names_a_time() -> None:
    def script(handler: BaseHTTPRequestHandler, attempt: int) -> None:
        if attempt == 1:
            say(handler, 409, Retry_After="0")
        else:
            say(handler, 409)

    with scripted(script) as (url, keys), Client(url, retry=QUICK) as client:
        answer = client.post("/", json={})
    assert (answer.status, answer.attempts, len(set(keys))) == (409, 2, 1)


@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.parametrize("code", [7, [1], {"a": 1}, None], ids=["number", "list", "object", "null"])
def test_what_a_service_says_is_an_answer_whatever_its_code_is(status: int, code: object) -> None:
    def script(handler: BaseHTTPRequestHandler, _: int) -> None:
        problem(handler, status, code=code, retryable=False)

    with scripted(script) as (url, keys), Client(url, retry=QUICK) as client:
        answer = client.post("/", json={})
    assert (answer.status, answer.attempts, len(keys)) == (status, 1, 1)
    assert answer.json()["code"] == code


@pytest.mark.parametrize("member", ["retryable", "retryAfterMs", "code"])
@pytest.mark.parametrize("text", ["[]", "{}", "null", "-1", "1e999", "NaN", "1" + "0" * 400, "[" * 60_000])
def test_what_isnt_of_the_kind_that_is_read_is_left_out(member: str, text: str) -> None:
    response = httpx.Response(
        503, headers={"Content-Type": "application/json", "Retry-After": "7"}, content=f'{{"{member}": {text}}}'
    )
    assert problem_of(response) == {}
    assert judge(response) == Verdict(again=True, after=7.0)


def test_a_broken_answer_is_asked_for_again() -> None:
    def script(handler: BaseHTTPRequestHandler, attempt: int) -> None:
        if attempt == 1:
            handler.wfile.write(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf")
            handler.connection.close()
        else:
            say(handler, 201, b"whole")

    with scripted(script) as (url, keys), Client(url, retry=QUICK) as client:
        answer = client.post("/", json={})
    assert (answer.content, len(keys), len(set(keys))) == (b"whole", 2, 1)


def test_the_budget_stops_a_storm() -> None:
    def script(handler: BaseHTTPRequestHandler, _: int) -> None:
        say(handler, 503)

    budget = RetryBudget(reserve=5, per_call=0.1)
    with scripted(script) as (url, keys), Client(url, retry=QUICK, budget=budget) as client:
        for _ in range(20):
            with pytest.raises(GaveUp):
                client.post("/", json={})
    assert 20 < len(keys) <= 20 + 5 + 20 * 0.1 + 1


def course(policy: RetryPolicy, chance: float) -> Course:
    return Course(policy, RetryBudget(), clock=lambda: 0.0, chance=lambda: chance)


def test_pauses_have_full_jitter_and_a_cap() -> None:
    policy = RetryPolicy(max_attempts=9, base=1, cap=5, total_timeout=1000)
    for chance in (0.0, 0.5, 1.0):
        run, pauses = course(policy, chance), []
        for _ in range(5):
            run.begin()
            pauses.append(run.after_error(httpx.ReadError("gone")))
        assert pauses == [chance * bound for bound in (1, 2, 4, 5, 5)]


def test_retry_after_is_the_least_and_jitter_comes_on_top() -> None:
    run = course(RetryPolicy(base=1, total_timeout=1000), 1.0)
    run.begin()
    assert run.after_response(httpx.Response(503, headers={"Retry-After": "7"})) == 8.0


def refusal(code: str) -> httpx.Response:
    return httpx.Response(503, json={"code": code, "retryable": True})


@pytest.mark.parametrize(
    ("code", "unknown"),
    [
        ("idempotency_too_many_waiters", True),
        ("idempotency_in_flight", True),
        ("idempotency_store_unavailable", False),
        ("idempotency_shut_down", True),
    ],
)
def test_what_runs_under_its_key_may_be_done(code: str, unknown: bool) -> None:
    run = course(RetryPolicy(base=1, total_timeout=1), 1.0)
    run.begin()
    with pytest.raises(GaveUp) as gave_up:
        run.after_response(refusal(code))
    assert gave_up.value.unknown == unknown


def test_the_first_attempt_that_may_have_arrived_unanswered_is_remembered() -> None:
    now = iter(range(100))
    run = Course(RetryPolicy(max_attempts=9, total_timeout=1000), RetryBudget(), clock=lambda: next(now))
    seen = []
    for what in (
        httpx.ConnectError("never sent"),
        refusal("idempotency_in_flight"),
        refusal("idempotency_store_unavailable"),
        httpx.ReadError("gone"),
    ):
        run.begin()
        if isinstance(what, httpx.Response):
            run.after_response(what)
        else:
            run.after_error(what)
        seen.append((run.sent_at, run.unanswered_at))
    third = seen[2][0]
    assert [unanswered for _, unanswered in seen] == [None, None, third, third]


def test_a_server_that_asks_for_too_much_isnt_waited_for() -> None:
    run = course(RetryPolicy(max_retry_after=10, total_timeout=1000), 0.0)
    run.begin()
    with pytest.raises(GaveUp):
        run.after_response(httpx.Response(503, headers={"Retry-After": "11"}))


def test_retry_after_may_be_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    text = (now + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert retry_after(httpx.Response(503, headers={"Retry-After": text}), {}, now) == 90
    assert retry_after(httpx.Response(503, headers={"Retry-After": "soon"}), {}, now) is None


def test_what_the_answer_says_counts_more_than_its_status() -> None:
    def of(status: int, **members: object) -> bool:
        content = json.dumps(members).encode()
        return judge(
            httpx.Response(status, headers={"Content-Type": "application/problem+json"}, content=content)
        ).again

    assert of(503)
    assert not of(503, retryable=False)
    assert not of(422)
    assert of(422, retryable=True)
    assert not of(200, retryable=True)


def test_a_call_keeps_its_key_until_its_answer_is_safe(sidecar: str, payments: Payments, tmp_path: Path) -> None:
    order = {"order": new_key()}
    with Client(sidecar, retry=QUICK, outbox=Outbox(tmp_path)) as client:
        with pytest.raises(RuntimeError), client.call("order-1") as call:
            first = call.post("/charges", json=order)
            raise RuntimeError("died before the answer was kept")
        with Client(sidecar, retry=QUICK, outbox=Outbox(tmp_path)) as other:
            (left,) = other.pending()
            assert left.key == first.key
            with left:
                again = left.send()
            assert list(other.pending()) == []
        with client.call("order-1") as call:
            assert call.key != first.key, "an answered call is forgotten, and the name is new"
    assert again.replayed
    assert again.content == first.content
    assert payments.effects[order["order"]] == 1


async def test_the_same_call_with_asyncio(sidecar: str, payments: Payments, tmp_path: Path) -> None:
    order = {"order": new_key()}
    async with AsyncClient(sidecar, retry=QUICK, outbox=Outbox(tmp_path)) as client:
        with pytest.raises(RuntimeError):
            async with client.call("order-1") as call:
                first = await call.post("/charges", json=order)
                raise RuntimeError("died before the answer was kept")
        for left in await client.pending():
            async with left:
                again = await left.send()
        assert await client.pending() == []
    assert (again.key, again.replayed) == (first.key, True)
    assert payments.effects[order["order"]] == 1


def test_a_member_is_read_as_it_was_written() -> None:
    text = '{"a": [1, {"body": 0}], "answer" : {"x\\"": "}", "body":  {"n": 1.50, "s": "\\u0041"} }}'
    assert member_text(text, ("answer", "body")) == '{"n": 1.50, "s": "\\u0041"}'
    assert member_text(text, ("answer", "none")) is None
    assert member_text("[]", ("answer",)) is None
