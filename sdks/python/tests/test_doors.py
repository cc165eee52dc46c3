"""What middlewares share: misconfiguration, terms by path, streams, files, claims whose callers are gone."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

import semel as package
from semel import AsyncSemel, RetryEvent, RetryPolicy, Semel, Terms, current_async_lease
from semel._http import replayed
from semel._routes import Routes
from semel.asgi import App, IdempotencyMiddleware, Message, Receive, Scope, Send
from semel.fastapi import IdempotentLease
from semel.testing import FakeSemel

QUICK = RetryPolicy(max_attempts=2, base=0.001, cap=0.002)


async def done(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


async def messages(app: App, path: str = "/", key: str = "k-1", **scope: Any) -> list[Message]:
    """What a server would send."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append({**message, "at": asyncio.get_running_loop().time()})

    headers = [(b"idempotency-key", key.encode())] if key else []
    full = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, **scope}
    await app(full, receive, send)
    return sent


def body_of(sent: list[Message]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent)


def refusing(status: int) -> AsyncSemel:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, json={"code": "unauthorized"}))
    return AsyncSemel("http://semel.test", http=httpx.AsyncClient(transport=transport), retry=QUICK)


@pytest.mark.parametrize(("status", "hint"), [(401, "token"), (403, "api.access"), (404, "/_semel"), (405, "/_semel")])
async def test_a_misconfiguration_is_told_as_one(status: int, hint: str, caplog: pytest.LogCaptureFixture) -> None:
    middleware = IdempotencyMiddleware(done, semel=refusing(status))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=middleware), base_url="http://a") as client:
        answer = await client.post("/", headers={"Idempotency-Key": "k-secret"})
    assert (answer.status_code, answer.json()["code"]) == (500, "idempotency_policy")
    assert (answer.json()["retryable"], "retry-after" in answer.headers) == (False, False)
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert hint in told.getMessage()
    assert str(status) in told.getMessage()
    assert "k-secret" not in caplog.text


async def test_a_store_that_cant_be_opened_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    semel = package.open_async("nothing://", retry=QUICK)
    sent = await messages(IdempotencyMiddleware(done, semel=semel))
    assert sent[0]["status"] == 503
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "can't be reached" in told.getMessage()


def test_an_answer_of_no_http_has_the_servers_status() -> None:
    view: Any = {"id": "0" * 64, "status": "completed", "answer": {"body": 1}}
    assert replayed(view).status == 500


def test_routes_are_read_by_path() -> None:
    default, hold, free = Terms(lease=9), Terms(crash="hold"), Terms(on_error="release")
    routes = Routes({"/refunds": hold, "/orders/{id}/refunds": hold, "PATCH /x": free, "/admin/*": free}, default)
    assert routes.terms("POST", "/refunds") == Terms(crash="hold", lease=9)
    assert routes.terms("POST", "/orders/1/refunds").crash == "hold"
    assert routes.terms("POST", "/orders/1/2/refunds") is default
    assert routes.terms("POST", "/refunds/") is default
    assert (routes.terms("PATCH", "/x").on_error, routes.terms("POST", "/x")) == ("release", default)
    assert routes.terms("POST", "/admin/a/b").on_error == "release"
    for wrong in ("refunds", "/a/{", "/*/b", "/{a b}"):
        with pytest.raises(ValueError, match="no route"):
            Routes({wrong: hold}, default)


async def test_terms_by_path_count_with_those_of_the_client() -> None:
    fake = FakeSemel()

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    semel = fake.async_semel(terms=Terms(lease=9))
    middleware = IdempotencyMiddleware(broken, semel=semel, routes={"/refunds": Terms(crash="hold")})
    for path in ("/refunds", "/other"):
        with pytest.raises(ZeroDivisionError):
            await messages(middleware, path, key=path.strip("/"))
    assert (fake.state("http", "refunds"), fake.state("http", "other")) == ("in_doubt", "released")


async def test_a_file_is_sent_and_kept_where_the_server_would_send_it_itself(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"content")
    runs: list[int] = []

    def file(_: Request) -> FileResponse:
        runs.append(1)
        return FileResponse(tmp_path / "a.txt")

    app = Starlette(routes=[Route("/", file, methods=["POST"])])
    middleware = IdempotencyMiddleware(app, semel=FakeSemel().async_semel())
    extensions: dict[str, Any] = {"http.response.pathsend": {}}
    for _ in range(2):
        sent = await asyncio.wait_for(messages(middleware, extensions=extensions), 5)
        assert (body_of(sent), sent[-1].get("more_body", False)) == (b"content", False)
    assert runs == [1]


async def test_a_path_that_is_sent_all_the_same_reaches_the_server() -> None:
    fake = FakeSemel()

    async def sending(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": "/a"})

    sent = await messages(IdempotencyMiddleware(sending, semel=fake.async_semel()))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.pathsend"]
    again = await messages(IdempotencyMiddleware(done, semel=fake.async_semel()))
    assert (b"idempotent-not-kept", b"body") in again[0]["headers"]


async def test_hints_and_trailers_reach_their_caller() -> None:
    async def hinting(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.early_hint", "links": []})
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"a"})
        await send({"type": "http.response.trailers", "headers": []})

    sent = await messages(IdempotencyMiddleware(hinting, semel=FakeSemel().async_semel()))
    kinds = [message["type"].rpartition(".")[2] for message in sent]
    assert kinds == ["early_hint", "start", "body", "trailers"]


@pytest.mark.parametrize(("pause", "passes"), [(0.5, True), (0.0, False)])
async def test_an_answer_that_takes_long_goes_on_as_it_comes(pause: float, passes: bool) -> None:
    fake = FakeSemel()

    async def lines(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(3):
            await asyncio.sleep(pause)
            await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": number < 2})

    middleware = IdempotencyMiddleware(lines, semel=fake.async_semel(), gather=0.3)
    sent = await messages(middleware)
    assert body_of(sent) == b"0\n1\n2\n"
    assert (sent[-1]["at"] - sent[0]["at"] > 0.9) == passes
    again = await messages(middleware)
    assert ((b"idempotent-not-kept", b"body") in again[0]["headers"]) == passes
    if not passes:
        assert body_of(again) == b"0\n1\n2\n"


async def test_a_handler_without_a_key_has_no_lease() -> None:
    seen: list[Any] = []

    async def asking(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(current_async_lease())
        await done(scope, receive, send)

    middleware = IdempotencyMiddleware(asking, semel=FakeSemel().async_semel())
    await messages(middleware, key="")
    await messages(middleware)
    assert (seen[0], seen[1] is None) == (None, False)


async def test_a_caller_that_is_cancelled_during_its_claim_releases_it() -> None:
    fake, claimed = FakeSemel(), asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        response = fake.transport.handle_request(request)
        if not claimed.is_set():
            claimed.set()
            await asyncio.sleep(60)
        return response

    http = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    semel = AsyncSemel("http://semel.test", http=http, retry=QUICK)

    async def never(_: object) -> None:
        raise AssertionError("it was cancelled")

    asking = asyncio.create_task(semel.run("charge", "k", never, terms=Terms(crash="hold")))
    await claimed.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert fake.state("charge", "k") == "released"


@pytest.mark.parametrize("signal", [KeyboardInterrupt, ZeroDivisionError])
def test_a_claim_that_a_signal_interrupts_is_released(signal: type[BaseException]) -> None:
    fake = FakeSemel()

    def handle(request: httpx.Request) -> httpx.Response:
        response = fake.transport.handle_request(request)
        if fake.calls == ["claim"]:
            raise signal
        return response

    semel = Semel("http://semel.test", http=httpx.Client(transport=httpx.MockTransport(handle)), retry=QUICK)
    with pytest.raises(signal):
        semel.run("charge", "k", lambda _: 1, terms=Terms(crash="hold"))
    assert fake.state("charge", "k") == "released"


async def test_a_cancelled_claim_that_won_nothing_takes_nothing_from_another() -> None:
    fake, asked = FakeSemel(), asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        if not asked.is_set():
            asked.set()
            await asyncio.sleep(60)
        return fake.transport.handle_request(request)

    fake.semel().api.claim({"scope": "charge", "key": "k", "token": "0" * 32})
    semel = AsyncSemel("http://semel.test", http=httpx.AsyncClient(transport=httpx.MockTransport(handle)), retry=QUICK)

    async def never(_: object) -> None:
        raise AssertionError("another runs")

    asking = asyncio.create_task(semel.run("charge", "k", never))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asking, 5)
    assert fake.state("charge", "k") == "running"


def test_a_lease_that_is_lost_is_told(caplog: pytest.LogCaptureFixture) -> None:
    fake, seen = FakeSemel(), list[RetryEvent]()

    def overtaken(lease: Any) -> str:
        fake.advance(31)
        fake.semel().run("pay", "k", lambda _: "ch_1")
        with pytest.raises(package.LeaseLost):
            lease.renew()
        return "mine"

    retry = RetryPolicy(base=0.001, on_event=seen.append)
    assert fake.semel(retry=retry).run("pay", "k", overtaken).value == "ch_1"
    assert [event.kind for event in seen if event.kind != "attempt"] == ["lease_lost"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_an_endpoint_of_fastapi_gets_its_lease_as_a_parameter() -> None:
    fake, app = FakeSemel(), FastAPI()
    app.add_middleware(IdempotencyMiddleware, semel=fake.async_semel())

    @app.post("/charges")
    async def charge(lease: IdempotentLease) -> str | None:
        return await lease.derive_key("bank") if lease else None

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://a") as client:
        keyed, again = [await client.post("/charges", headers={"Idempotency-Key": "k-1"}) for _ in range(2)]
        bare = await client.post("/charges")
        document = (await client.get("/openapi.json")).json()
    assert keyed.json() == again.json()
    assert keyed.json().startswith("semel-")
    assert (again.headers["idempotent-replayed"], bare.json()) == ("true", None)
    (parameter,) = document["paths"]["/charges"]["post"]["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("Idempotency-Key", "header", False)
