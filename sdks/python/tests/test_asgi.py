"""The ASGI middleware where answers are large, streams, doubtful, or the sidecar isn't there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2 as httpx
import pytest

from semel import AsyncSemel, RetryPolicy, Terms, new_key
from semel.asgi import IdempotencyMiddleware, Message, Receive, Scope, Send
from semel.testing import FakeSemel
from support.servers import free_port

QUICK = RetryPolicy(max_attempts=2, base=0.01, cap=0.1, total_timeout=30)
Answering = Callable[[Send], Awaitable[None]]


class App:
    """Answers as it is told, and counts."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.runs = 0
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.runs += 1
        self.bodies.append((await receive())["body"])
        await self.answering(send)


def saying(status: int, body: bytes = b"", **headers: str) -> Answering:
    async def answering(send: Send) -> None:
        lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": body})

    return answering


@pytest.fixture
async def semel(api: str) -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel(api, retry=QUICK) as client:
        yield client


async def post(app: IdempotencyMiddleware, key: str, content: bytes = b"{}") -> httpx.Response:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        return await client.post("/charges", content=content, headers=headers)


async def test_a_large_answer_reaches_its_caller_and_isnt_kept(semel: AsyncSemel) -> None:
    app, key = App(saying(201, b"x" * (1024 * 1024 + 1), content_type="text/plain")), new_key()
    middleware = IdempotencyMiddleware(app, semel=semel)
    first, again = await post(middleware, key), await post(middleware, key)
    assert (first.status_code, len(first.content)) == (201, 1024 * 1024 + 1)
    assert (again.status_code, again.headers["idempotent-not-kept"]) == (201, "body")
    assert again.json()["code"] == "idempotency_body_not_kept"
    assert app.runs == 1


async def test_a_stream_isnt_held_back(semel: AsyncSemel) -> None:
    arrived = asyncio.Event()

    async def streaming(send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await asyncio.wait_for(arrived.wait(), 10)
        await send({"type": "http.response.body", "body": b"data: 2\n\n"})

    app, key, got = App(streaming), new_key(), list[bytes]()
    middleware = IdempotencyMiddleware(app, semel=semel)

    async def send(message: Message) -> None:
        got.append(message.get("body", b""))
        if message.get("body"):
            arrived.set()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/events", "query_string": b""}
    await middleware({**scope, "headers": [(b"idempotency-key", key.encode())]}, receive, send)
    assert b"".join(got) == b"data: 1\n\ndata: 2\n\n"
    assert app.runs == 1


@pytest.mark.parametrize(("said", "then"), [("no-effect", 2), ("unknown", 1)])
async def test_a_handler_may_say_what_became_of_it(semel: AsyncSemel, said: str, then: int) -> None:
    app, key = App(saying(200, b"ok", semel_outcome=said)), new_key()
    middleware = IdempotencyMiddleware(app, semel=semel)
    first, again = await post(middleware, key), await post(middleware, key)
    assert (first.status_code, "semel-outcome" in first.headers) == (200, False)
    assert (app.runs, again.status_code) == (then, 200 if then == 2 else 409)
    if then == 1:
        assert again.json()["code"] == "idempotency_in_doubt"


async def test_an_error_follows_the_crash_policy(semel: AsyncSemel) -> None:
    async def broken(send: Send) -> None:
        raise ZeroDivisionError

    for terms, runs in ((Terms(), 2), (Terms(crash="hold"), 1)):
        app, key = App(broken), new_key()
        middleware = IdempotencyMiddleware(app, semel=semel, terms=terms)
        first, again = await post(middleware, key), await post(middleware, key)
        assert (first.status_code, again.status_code, app.runs) == (500, 500 if runs == 2 else 409, runs)


async def test_without_the_sidecar_nothing_is_started() -> None:
    app = App(saying(201))
    async with AsyncSemel(f"http://127.0.0.1:{free_port()}", retry=QUICK) as semel:
        answer = await post(IdempotencyMiddleware(app, semel=semel), new_key())
    assert (answer.status_code, answer.json()["code"]) == (503, "idempotency_store_unavailable")
    assert (answer.headers["retry-after"], app.runs) == ("1", 0)


async def test_bodies_are_bounded_and_must_be_comparable(semel: AsyncSemel) -> None:
    app = App(saying(201))
    middleware = IdempotencyMiddleware(app, semel=semel, max_body=10)
    large, double = await post(middleware, new_key(), b'"0123456789"'), await post(middleware, new_key(), b"{1:")
    assert (large.status_code, double.status_code, app.runs) == (413, 400, 0)
    assert double.json()["code"] == "idempotency_payload_invalid"
    assert (await post(middleware, new_key(), b'"01234567"')).status_code == 201
    assert app.bodies == [b'"01234567"']


async def test_a_caller_that_is_cut_off_leaves_a_run_that_ends(semel: AsyncSemel) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def slow(send: Send) -> None:
        started.set()
        await may_end.wait()
        await saying(201, b"done")(send)

    app, key = App(slow), new_key()
    middleware = IdempotencyMiddleware(app, semel=semel)
    caller = asyncio.create_task(post(middleware, key))
    await started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    idle = asyncio.create_task(middleware.idle())
    await asyncio.sleep(0.05)
    assert not idle.done(), "what was left behind is waited for"
    may_end.set()
    await idle
    again = await post(middleware, key)
    assert (again.content, again.headers["idempotent-replayed"], app.runs) == (b"done", "true", 1)


async def test_what_fails_after_a_whole_answer_changes_nothing_about_it(semel: AsyncSemel) -> None:
    async def then_fails(send: Send) -> None:
        await saying(201, b"charged")(send)
        raise ZeroDivisionError

    app, key = App(then_fails), new_key()
    middleware = IdempotencyMiddleware(app, semel=semel)
    first, again = await post(middleware, key), await post(middleware, key)
    assert (first.status_code, again.status_code, again.content) == (201, 201, b"charged")
    assert (app.runs, again.headers["idempotent-replayed"]) == (1, "true")


@pytest.mark.parametrize(("authority", "status"), [(True, 422), (False, 201)])
async def test_the_host_that_was_asked_counts(semel: AsyncSemel, authority: bool, status: int) -> None:
    app, key = App(saying(201)), new_key()
    middleware = IdempotencyMiddleware(app, semel=semel, authority=authority)
    answers = []
    for host in ("http://a.test", "http://b.test"):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=middleware), base_url=host) as client:
            answers.append((await client.post("/charges", headers={"Idempotency-Key": key})).status_code)
    assert (answers, app.runs) == ([201, status], 1)


@pytest.mark.parametrize(("sent", "status"), [(b"/files/a%2Fb", 422), (b"/files/a/b", 201)])
async def test_the_path_counts_as_it_was_sent(sent: bytes, status: int) -> None:
    fake = FakeSemel()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    middleware = IdempotencyMiddleware(app, semel=fake.async_semel())

    async def asked(raw: bytes) -> int:
        said: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            said.append(message)

        headers = [(b"idempotency-key", b"k-1")]
        await middleware(
            {"type": "http", "method": "POST", "path": "/files/a/b", "raw_path": raw, "headers": headers}, receive, send
        )
        return int(said[0]["status"])

    assert await asked(b"/files/a/b") == 201
    assert await asked(sent) == status
