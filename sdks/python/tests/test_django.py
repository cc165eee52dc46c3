"""The Django middleware, with the fake server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import django
import httpx2 as httpx
import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.test import RequestFactory

from semel import asgi
from semel.asgi import Receive, Scope, Send
from semel.django import IdempotencyMiddleware
from semel.testing import FakeSemel

KEY = {"Idempotency-Key": "k-1", "Content-Type": "text/plain", "Host": "testserver"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSemel:
    fake = FakeSemel()
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], SEMEL={"URL": "http://semel.test"})
        django.setup()
    monkeypatch.setattr("semel.django._semel", fake.semel)
    return fake


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
