"""The events of a call's attempts, by which a program counts them."""

from __future__ import annotations

from collections.abc import Callable

import httpx2 as httpx
import pytest

from semel import AsyncClient, Client, Conflict, GaveUp, InDoubt, RetryEvent, RetryPolicy

Answers = list[Callable[[httpx.Request], httpx.Response]]


def policy(seen: list[RetryEvent], **more: int) -> RetryPolicy:
    return RetryPolicy(base=0.001, cap=0.002, on_event=seen.append, **more)


def says(status: int, code: str = "", **headers: str) -> Callable[[httpx.Request], httpx.Response]:
    body = {"code": code, "retryable": False} if code else None
    return lambda _: httpx.Response(status, json=body, headers=headers)


def cut(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("cut", request=request)


def transport(answers: Answers) -> httpx.MockTransport:
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        return next(left)(request)

    return httpx.MockTransport(answer)


def asked(answers: Answers, retry: RetryPolicy, key: str = "key-that-no-event-has") -> int:
    with Client(retry=retry, http=httpx.Client(transport=transport(answers), base_url="http://a")) as client:
        return client.post("/charges", key=key).status


def test_attempts_retries_and_a_replay_are_told_in_order() -> None:
    seen: list[RetryEvent] = []
    assert asked([says(503), cut, says(201, **{"Idempotent-Replayed": "true"})], policy(seen)) == 201
    assert [(event.kind, event.attempt) for event in seen] == [
        ("attempt", 1),
        ("retry", 1),
        ("attempt", 2),
        ("retry", 2),
        ("attempt", 3),
        ("replay", 3),
    ]
    assert seen[1].reason == "the last answer was 503"
    assert seen[3].reason == "no answer (ReadError)"
    assert all(0 <= event.pause <= 0.002 for event in seen)
    assert "key-that-no-event-has" not in repr(seen)


async def test_asyncio_tells_the_same() -> None:
    seen: list[RetryEvent] = []
    http = httpx.AsyncClient(transport=transport([says(503), says(201)]), base_url="http://a")
    async with AsyncClient(retry=policy(seen), http=http) as client:
        await client.post("/charges")
    assert [event.kind for event in seen] == ["attempt", "retry", "attempt"]


@pytest.mark.parametrize(
    ("status", "code", "kind", "error"),
    [
        (422, "idempotency_conflict", "conflict", Conflict),
        (409, "idempotency_in_doubt", "in_doubt", InDoubt),
        (500, "idempotency_record_unreadable", "in_doubt", InDoubt),
    ],
)
def test_conflicts_and_doubts_are_told(status: int, code: str, kind: str, error: type[Exception]) -> None:
    seen: list[RetryEvent] = []
    with pytest.raises(error):
        asked([says(status, code)], policy(seen))
    assert [event.kind for event in seen] == ["attempt", kind]


def test_the_end_of_all_tries_is_told_with_its_reason() -> None:
    seen: list[RetryEvent] = []
    with pytest.raises(GaveUp):
        asked([says(503), says(502)], policy(seen, max_attempts=2))
    assert [event.kind for event in seen] == ["attempt", "retry", "attempt", "gave_up"]
    assert seen[-1].reason == "the last answer was 502"


def test_an_observer_that_fails_changes_nothing() -> None:
    def fails(_: RetryEvent) -> None:
        raise RuntimeError("no counters today")

    assert asked([says(503), says(201)], RetryPolicy(base=0.001, cap=0.002, on_event=fails)) == 201
