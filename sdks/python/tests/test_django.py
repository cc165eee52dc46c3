"""The Django middleware, with the fake server."""

from __future__ import annotations

import django
import httpx
import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from semel import asgi
from semel.asgi import Receive, Scope, Send
from semel.django import IdempotencyMiddleware
from semel.testing import FakeSemel

KEY = {"Idempotency-Key": "k-1", "Content-Type": "text/plain"}


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
    request = RequestFactory().post("/charges", b"1", content_type="text/plain", headers={"Idempotency-Key": "k-1"})
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
    async with httpx.AsyncClient(transport=door, base_url="http://shop.test") as client:
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
