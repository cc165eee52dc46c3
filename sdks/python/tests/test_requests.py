"""What a client sends and gets: verbs, options, its own connections, other services' words for retries, logs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest

from semel import AsyncClient, Client, Conflict, GaveUp, InDoubt, Outbox, ProblemError, RetryPolicy
from semel.retry import Verdict, judge, retry_after

QUICK = RetryPolicy(max_attempts=3, base=0.001, cap=0.002)
Answering = Callable[[httpx.Request], httpx.Response]


class Server:
    """Keeps what it was asked."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.asked: list[httpx.Request] = []
        self._answers = iter(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.asked.append(request)
        return next(self._answers, None) or httpx.Response(201, text="done", headers={"X-Own": "1"})

    def http(self, **options: Any) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self), **options)

    def ahttp(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self), **options)


def test_connections_of_ones_own_go_to_the_base_with_the_headers() -> None:
    server = Server()
    mine = server.http(headers={"X-Mine": "1", "X-Both": "1"})
    client = Client("https://user:pw@api.test/v1", headers={"X-Both": "2"}, http=mine)
    client.post("/charges", json={}, headers={"X-Call": "3"})
    (asked,) = server.asked
    assert (asked.url.host, asked.url.path) == ("api.test", "/v1/charges")
    assert [asked.headers[name] for name in ("X-Mine", "X-Both", "X-Call")] == ["1", "2", "3"]
    assert asked.headers["Authorization"].startswith("Basic ")


def test_the_base_of_ones_own_connections_is_used() -> None:
    server = Server()
    Client(http=server.http(base_url="https://api.test/v1")).post("charges", json={})
    assert str(server.asked[0].url) == "https://api.test/v1/charges"


async def test_the_same_with_asyncio() -> None:
    server = Server()
    async with AsyncClient("https://api.test/v1", headers={"X-Both": "2"}, http=server.ahttp()) as client:
        await client.post("/charges", json={})
        await client.get("/charges", params={"page": 2})
        await client.put("/charges/1", content=b"x")
        await client.delete("/charges/1")
    urls = [str(asked.url) for asked in server.asked]
    assert urls[:2] == ["https://api.test/v1/charges", "https://api.test/v1/charges?page=2"]
    assert [asked.method for asked in server.asked] == ["POST", "GET", "PUT", "DELETE"]
    assert ["idempotency-key" in asked.headers for asked in server.asked] == [True, False, True, True]
    assert {asked.headers["X-Both"] for asked in server.asked} == {"2"}


def test_what_changes_nothing_has_no_key_unless_it_is_given_one() -> None:
    server = Server(httpx.Response(503), httpx.Response(200))
    with Client("https://api.test", retry=QUICK, http=server.http()) as client:
        answer = client.get("/charges")
        assert (answer.status, answer.attempts, answer.key) == (200, 2, "")
        client.request("HEAD", "/charges")
        client.request("GET", "/charges", key="k-1")
        client.put("/charges/1", json={})
        client.delete("/charges/1", key="k-2")
    keys = [asked.headers.get("idempotency-key") for asked in server.asked]
    assert keys[:4] == [None, None, None, "k-1"]
    assert keys[4] is not None
    assert keys[5] == "k-2"


def test_requests_take_what_httpx_takes() -> None:
    server = Server(httpx.Response(503))
    with Client("https://api.test/", retry=QUICK, http=server.http()) as client:
        client.post("/forms", data={"a": "1"}, params={"q": "x y"}, auth=("me", "pw"))
        client.post("/files", files={"file": ("a.txt", b"content")})
    first, again, upload = server.asked
    assert (first.content, first.url.query) == (b"a=1", b"q=x+y") or first.url.params["q"] == "x y"
    assert first.headers["content-type"] == "application/x-www-form-urlencoded"
    assert (again.content, again.headers["idempotency-key"]) == (first.content, first.headers["idempotency-key"])
    assert again.headers["authorization"] == first.headers["authorization"]
    assert upload.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b"content" in upload.content


def test_two_kinds_of_body_are_refused() -> None:
    with Client("https://api.test") as client, pytest.raises(ValueError, match="json"):
        client.post("/", json={}, content=b"")


def test_a_time_limit_of_one_call_is_that_of_each_attempt() -> None:
    server = Server()
    with Client("https://api.test", http=server.http()) as client:
        client.post("/", json={}, timeout=3.0)
        client.post("/", json={})
    assert [asked.extensions["timeout"]["read"] for asked in server.asked] == [3.0, 35.0]


def test_an_answer_reads_like_one_of_httpx() -> None:
    with Client("https://api.test", http=Server(httpx.Response(402, text="no")).http()) as client:
        refused, done = client.post("/", json={}), client.post("/", json={})
    assert (refused.ok, refused.status_code, refused.text) == (False, 402, "no")
    assert (done.ok, done.status, done.headers["x-own"], done.content) == (True, 201, "1", b"done")


def test_a_stored_call_has_its_parameters(tmp_path: Any) -> None:
    server = Server(*[httpx.Response(503)] * 3)
    with Client("https://api.test/v1", retry=QUICK, http=server.http(), outbox=Outbox(tmp_path)) as client:
        with pytest.raises(GaveUp), client.call("c-1") as call:
            call.post("/charges", json={"a": 1}, params={"q": "1"})
        for call in client.pending():
            with call:
                call.send()
    assert {str(asked.url) for asked in server.asked} == {"https://api.test/v1/charges?q=1"}
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1


def says(status: int, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("name", ["x_should_retry", "stripe_should_retry"])
def test_what_services_say_of_retries_counts_more_than_the_status(name: str) -> None:
    assert judge(says(409, **{name: "true"})) == Verdict(again=True)
    assert judge(says(400, **{name: "true"})).again
    assert not judge(says(503, **{name: "false"})).again
    assert judge(says(503, **{name: "maybe"})).again
    assert not judge(says(200, **{name: "true"})).again
    final = httpx.Response(503, json={"retryable": False}, headers={name.replace("_", "-"): "true"})
    assert not judge(final).again, "the answer's own word counts most"


def test_milliseconds_of_a_header_count_more_than_its_seconds() -> None:
    assert retry_after(says(429, retry_after_ms="250", retry_after="1"), {}) == 0.25
    for wrong in ("-1", "nan", "x", "1e400"):
        assert retry_after(says(429, retry_after_ms=wrong, retry_after="1"), {}) == 1.0


def stripe(status: int, **error: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": "…", **error}})


def test_stripes_word_for_another_payload_is_a_conflict() -> None:
    server = Server(stripe(400, type="idempotency_error"))
    with Client("https://api.test", http=server.http()) as client, pytest.raises(Conflict) as told:
        client.post("/", json={}, key="k-1")
    assert (told.value.status, told.value.key) == (400, "k-1")
    assert "k-1" not in str(told.value) + repr(told.value)


def test_stripes_word_for_a_run_under_way_is_waited_for() -> None:
    running = stripe(409, type="idempotency_error", code="idempotency_key_in_use")
    assert judge(running) == Verdict(again=True, waits=True)
    with Client("https://api.test", retry=QUICK, http=Server(*[running] * 5).http()) as client:
        assert client.post("/", json={}).attempts == 6


def test_a_profile_of_stripe_still_tells_doubt() -> None:
    server = Server(stripe(409, type="idempotency_error", code="idempotency_in_doubt"))
    with Client("https://api.test", http=server.http()) as client, pytest.raises(InDoubt):
        client.post("/", json={})


def test_a_refusal_of_another_kind_is_an_answer() -> None:
    server = Server(stripe(402, type="card_error", code="card_declined"))
    with Client("https://api.test", http=server.http()) as client:
        assert client.post("/", json={}).status == 402


def test_every_error_has_its_key() -> None:
    refusals = (
        httpx.Response(422, json={"code": "idempotency_conflict"}),
        httpx.Response(409, json={"code": "idempotency_in_doubt"}),
        httpx.Response(400, json={"code": "idempotency_key_required"}),
    )
    with Client("https://api.test", http=Server(*refusals).http()) as client:
        for _ in refusals:
            with pytest.raises(ProblemError) as told:
                client.post("/", json={}, key="k-secret")
            assert told.value.key == "k-secret"
            assert "k-secret" not in str(told.value) + repr(told.value)


def test_steps_of_a_call_are_logged_without_key_and_address(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(says(503), says(503), says(503))
    with caplog.at_level(logging.DEBUG, "semel"), Client("https://api.test", retry=QUICK, http=server.http()) as client:
        with pytest.raises(GaveUp):
            client.post("/charges", json={"a": "payload"}, key="k-secret")
        client.post("/charges", json={})
    levels = [(record.levelname, record.name) for record in caplog.records]
    assert levels == [("INFO", "semel"), ("INFO", "semel"), ("WARNING", "semel")]
    text = caplog.text
    assert "the last answer was 503" in text
    assert not any(word in text for word in ("k-secret", "api.test", "charges", "payload"))


def test_a_conflict_and_a_doubt_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    answers = [httpx.Response(422, json={"code": code}) for code in ("idempotency_conflict", "idempotency_in_doubt")]
    with caplog.at_level(logging.INFO, "semel"), Client("https://api.test", http=Server(*answers).http()) as client:
        for _ in answers:
            with pytest.raises(ProblemError):
                client.post("/", json={})
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
