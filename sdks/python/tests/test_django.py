"""The Django middleware, with the fake server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import django
import httpx2 as httpx
import pytest
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.test import AsyncRequestFactory, RequestFactory, override_settings

from semel import AsyncLease, Terms, asgi, current_async_lease
from semel.asgi import Receive, Scope, Send
from semel.django import IdempotencyMiddleware
from semel.testing import FakeSemel

KEY = {"Idempotency-Key": "k-1", "Content-Type": "text/plain", "Host": "testserver"}


if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], SEMEL={"URL": "http://semel.test"})
    django.setup()


@pytest.fixture
def fake() -> Iterator[FakeSemel]:
    fake = FakeSemel()
    with override_settings(SEMEL={"CLIENT": fake.semel(), "ASYNC_CLIENT": fake.async_semel()}):
        yield fake


def never(_: HttpRequest) -> HttpResponse:
    raise AssertionError("it was done before")


def posted(middleware: IdempotencyMiddleware) -> HttpResponse:
    request = RequestFactory().post("/charges", b"1", content_type="text/plain", headers=KEY)
    response = middleware(request)
    assert isinstance(response, HttpResponse)
    return response


async def test_every_line_of_a_header_is_replayed(fake: FakeSemel) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Django itself has one line for each name; what it replays may have been answered elsewhere.
        lines = [(b"content-type", b"text/plain"), (b"link", b"</1>; rel=next"), (b"link", b"</0>; rel=prev")]
        await send({"type": "http.response.start", "status": 201, "headers": lines})
        await send({"type": "http.response.body", "body": b"done"})

    door = httpx.ASGITransport(app=asgi.IdempotencyMiddleware(app, semel=fake.async_semel()))
    async with httpx.AsyncClient(transport=door, base_url="http://testserver") as client:
        await client.post("/charges", content=b"1", headers=KEY)
    again = posted(IdempotencyMiddleware(never))
    assert (again.status_code, again.content, again["Idempotent-Replayed"]) == (201, b"done", "true")
    assert again["Link"] == "</1>; rel=next, </0>; rel=prev"
    assert again["Content-Type"] == "text/plain"


def test_a_replay_says_each_thing_of_its_own_once(fake: FakeSemel) -> None:
    def large(_: HttpRequest) -> HttpResponse:
        return HttpResponse(b"x" * (1024 * 1024 + 1), status=201, content_type="text/plain")

    assert len(posted(IdempotencyMiddleware(large)).content) == 1024 * 1024 + 1
    again = posted(IdempotencyMiddleware(never))
    assert (again.status_code, again["Idempotent-Not-Kept"]) == (201, "body")
    assert (again["Cache-Control"], again["Content-Type"]) == ("no-store", "application/problem+json")


@pytest.mark.parametrize(("said", "state"), [("no-effect", "released"), ("Unknown ", "in_doubt"), (None, "completed")])
def test_a_view_may_say_what_became_of_it(fake: FakeSemel, said: str | None, state: str) -> None:
    def view(_: HttpRequest) -> HttpResponse:
        return HttpResponse(b"ok", headers={"Semel-Outcome": said} if said else {})

    assert "Semel-Outcome" not in posted(IdempotencyMiddleware(view))
    assert fake.state("http", "k-1") == state


def test_a_key_that_another_host_used_is_refused(fake: FakeSemel) -> None:
    hosts: list[str] = []

    def view(request: HttpRequest) -> HttpResponse:
        hosts.append(request.get_host())
        return HttpResponse(b"ok")

    def asked(host: str) -> HttpResponseBase:
        request = RequestFactory().post("/charges", b"1", content_type="text/plain", headers={**KEY, "Host": host})
        return IdempotencyMiddleware(view)(request)

    assert [asked(host).status_code for host in ("a.shop", "b.shop", "A.shop")] == [200, 422, 200]
    assert hosts == ["a.shop"]


def half() -> Iterator[bytes]:
    yield b"one"
    raise ZeroDivisionError


async def aparts() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


def streamed(view: Callable[[], StreamingHttpResponse]) -> StreamingHttpResponse:
    request = RequestFactory().post("/charges", b"1", content_type="text/plain", headers=KEY)
    response = IdempotencyMiddleware(lambda _: view())(request)
    assert isinstance(response, StreamingHttpResponse)
    return response


def test_a_stream_is_done_at_its_end_and_not_before(fake: FakeSemel) -> None:
    response = streamed(lambda: StreamingHttpResponse(iter([b"one", b"two"]), status=201))
    assert fake.state("http", "k-1") == "running"
    assert response.getvalue() == b"onetwo"
    response.close()
    assert fake.state("http", "k-1") == "completed"
    again = posted(IdempotencyMiddleware(never))
    assert (again.status_code, again["Idempotent-Not-Kept"]) == (201, "body")


def test_a_stream_that_breaks_off_frees_its_key(fake: FakeSemel) -> None:
    response = streamed(lambda: StreamingHttpResponse(half()))
    with pytest.raises(ZeroDivisionError):
        response.getvalue()
    response.close()
    assert fake.state("http", "k-1") == "released"


def test_a_stream_that_nobody_reads_frees_its_key(fake: FakeSemel) -> None:
    streamed(lambda: StreamingHttpResponse(iter([b"one"]))).close()
    assert fake.state("http", "k-1") == "released"


async def test_an_asynchronous_stream_is_done_at_its_end(fake: FakeSemel) -> None:
    response = streamed(lambda: StreamingHttpResponse(aparts()))
    assert b"".join([part async for part in response]) == b"onetwo"
    response.close()
    assert fake.state("http", "k-1") == "completed"


def test_settings_that_a_test_overrides_count(fake: FakeSemel) -> None:
    other = FakeSemel()
    middleware = IdempotencyMiddleware(lambda _: HttpResponse(b"ok"))
    with override_settings(SEMEL={"CLIENT": other.semel(), "SCOPE": "charges", "REQUIRE_KEY": True}):
        posted(middleware)
        refused = middleware(RequestFactory().post("/charges", b"1", content_type="text/plain"))
    assert (other.state("charges", "k-1"), fake.state("http", "k-1"), refused.status_code) == ("completed", None, 400)
    posted(middleware)
    assert fake.state("http", "k-1") == "completed"


def test_a_setting_that_isnt_one_is_refused_at_the_start() -> None:
    with (
        override_settings(SEMEL={"URL": "http://semel.test", "SCOPES": "charges"}),
        pytest.raises(ImproperlyConfigured, match="SCOPES"),
    ):
        IdempotencyMiddleware(never)


def owner(request: HttpRequest) -> str | None:
    return str(request.headers["X-User"]) if "X-User" in request.headers else None


def test_terms_by_path_and_whose_key_it_is(fake: FakeSemel) -> None:
    def broken(_: HttpRequest) -> HttpResponse:
        return HttpResponse(status=500)

    client = fake.semel()
    given = {"CLIENT": client, "ROUTES": {"/charges": Terms(crash="hold")}, "PRINCIPAL": owner}
    with override_settings(SEMEL=given):
        posted(IdempotencyMiddleware(broken))
        assert fake.state("http", "k-1") == "in_doubt"
        request = RequestFactory().post("/charges", b"1", content_type="text/plain", headers={**KEY, "X-User": "ada"})
        assert IdempotencyMiddleware(lambda _: HttpResponse(b"ok"))(request).status_code == 200


async def aposted(middleware: IdempotencyMiddleware) -> HttpResponseBase:
    request = AsyncRequestFactory().post("/charges", b"1", content_type="text/plain", headers=KEY)
    response = await middleware(request)
    assert isinstance(response, HttpResponseBase)
    return response


async def test_an_asynchronous_view_runs_once_on_the_event_loop(fake: FakeSemel) -> None:
    seen: list[object] = []

    async def view(_: HttpRequest) -> HttpResponse:
        seen.extend((threading.current_thread(), current_async_lease()))
        return HttpResponse(b"ok", status=201)

    middleware = IdempotencyMiddleware(view)
    assert iscoroutinefunction(middleware)
    first, again = await aposted(middleware), await aposted(middleware)
    assert isinstance(again, HttpResponse)
    assert (first.status_code, again.status_code, again.content) == (201, 201, b"ok")
    assert again["Idempotent-Replayed"] == "true"
    (thread, lease) = seen
    assert thread is threading.current_thread()
    assert isinstance(lease, AsyncLease)


async def test_an_asynchronous_view_whose_client_left_runs_to_its_end(fake: FakeSemel) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def view(_: HttpRequest) -> HttpResponse:
        started.set()
        await may_end.wait()
        return HttpResponse(b"ok")

    asking = asyncio.create_task(aposted(IdempotencyMiddleware(view)))
    await started.wait()
    asking.cancel()
    await asyncio.sleep(0.01)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert fake.state("http", "k-1") == "completed"


@pytest.mark.parametrize("read", [True, False])
async def test_a_stream_of_an_asynchronous_view_is_done_at_its_end(fake: FakeSemel, read: bool) -> None:
    async def view(_: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(aparts())

    response = await aposted(IdempotencyMiddleware(view))
    assert isinstance(response, StreamingHttpResponse)
    assert fake.state("http", "k-1") == "running"
    if read:
        assert b"".join([part async for part in response]) == b"onetwo"
    # As Django does it: in a thread.
    await asyncio.to_thread(response.close)
    assert fake.state("http", "k-1") == ("completed" if read else "released")


async def test_requests_without_a_key_pass_and_bad_ones_are_refused(fake: FakeSemel) -> None:
    async def view(_: HttpRequest) -> HttpResponse:
        assert current_async_lease() is None
        return HttpResponse(b"ok")

    middleware = IdempotencyMiddleware(view)
    codes = []
    for headers in ({}, {"Idempotency-Key": "a b"}):
        request = AsyncRequestFactory().post("/charges", b"1", content_type="text/plain", headers=headers)
        codes.append((await middleware(request)).status_code)
    assert (codes, fake.calls) == ([200, 400], [])
