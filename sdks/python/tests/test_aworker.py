"""The same for asyncio, and what only asyncio has: cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest

from semel import (
    AsyncLease,
    AsyncSemel,
    EffectFailed,
    Final,
    InDoubt,
    RetryPolicy,
    Terms,
    Unrecorded,
    current_async_lease,
    new_key,
    open_async,
)
from semel.testing import FakeSemel
from support.clock import Clock
from support.servers import new_environment, redis_url

QUICK = RetryPolicy(base=0.01, cap=0.1, total_timeout=30)


@pytest.fixture(params=["real", "inside", "fake"])
async def semel(request: pytest.FixtureRequest) -> AsyncIterator[AsyncSemel]:
    """One test for all."""
    if request.param == "fake":
        async with FakeSemel().async_semel() as client:
            yield client
    elif request.param == "inside":
        async with open_async(redis_url(), environment=new_environment(), retry=QUICK) as client:
            yield client
    else:
        async with AsyncSemel(request.getfixturevalue("api"), retry=QUICK) as client:
            yield client


async def test_a_decorated_coroutine_runs_once(semel: AsyncSemel) -> None:
    runs: list[str] = []

    @semel.idempotent("charge", key=lambda order: order["id"])
    async def charge(order: dict[str, Any]) -> dict[str, str]:
        lease = current_async_lease()
        assert lease is not None
        runs.append(await lease.derive_key("psp"))
        await asyncio.sleep(0.1)
        return {"charge": "ch_1"}

    order = {"id": new_key(), "cents": 5}
    answers = await asyncio.gather(*(charge(order) for _ in range(8)))
    assert answers == [{"charge": "ch_1"}] * 8
    assert len(runs) == 1


async def test_a_block_is_an_operation_too(semel: AsyncSemel) -> None:
    key = new_key()
    for replayed in (False, True):
        async with semel.operation("charge", key) as operation:
            assert operation.replayed == replayed
            if not replayed:
                assert operation.lease is not None
                await operation.lease.save_checkpoint({"page": 1})
                operation.complete([1])
        assert operation.value == [1]


async def test_a_cancelled_effect_is_settled_before_the_cancellation_goes_on(semel: AsyncSemel) -> None:
    for terms, then in ((Terms(), "runs"), (Terms(crash="hold"), "in doubt")):
        key, started = new_key(), asyncio.Event()

        async def effect(_: AsyncLease | None, started: asyncio.Event = started) -> None:
            started.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(semel.run("charge", key, effect, terms=terms))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def quick(_: AsyncLease | None) -> int:
            return 2

        if then == "runs":
            assert (await semel.run("charge", key, quick, terms=terms)).value == 2
        else:
            with pytest.raises(InDoubt):
                await semel.run("charge", key, quick, terms=terms)


async def test_a_caller_that_is_cancelled_at_any_moment_of_its_claim_leaves_the_key_free(semel: AsyncSemel) -> None:
    async def never(_: AsyncLease | None) -> int:
        await asyncio.sleep(60)
        raise AssertionError("it was cancelled")

    async def quick(_: AsyncLease | None) -> int:
        return 2

    terms = Terms(crash="hold", on_error="release", wait=0)
    for step in range(20):
        key = new_key()
        asking = asyncio.create_task(semel.run("charge", key, never, terms=terms))
        await asyncio.sleep(step * 0.0005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(1):
            assert (await semel.run("charge", key, quick, terms=terms)).value == 2


async def test_a_lease_is_renewed_while_the_effect_runs(semel: AsyncSemel) -> None:
    key, terms = new_key(), Terms(lease=3.0, wait=20.0)

    async def slow(lease: AsyncLease | None) -> str:
        await asyncio.sleep(8)
        assert lease is not None
        lease.check()
        return "done"

    async def other(_: AsyncLease | None) -> str:
        return "taken over"

    first = asyncio.create_task(semel.run("slow", key, slow, terms=terms))
    await asyncio.sleep(4)
    second = await semel.run("slow", key, other, terms=terms)
    assert ((await first).value, second.value) == ("done", "done")


async def test_a_failure_for_good_is_everybodys(semel: AsyncSemel) -> None:
    key = new_key()

    async def effect(_: AsyncLease | None) -> None:
        raise Final({"why": "card"})

    for replayed in (False, True):
        with pytest.raises(EffectFailed) as failed:
            await semel.run("charge", key, effect)
        assert (failed.value.answer, failed.value.replayed) == ({"why": "card"}, replayed)


def over(fake: FakeSemel, handle: Any) -> AsyncSemel:
    policy = RetryPolicy(base=0.001, cap=0.01, total_timeout=600)
    return AsyncSemel("http://semel.test", http=httpx.AsyncClient(transport=httpx.MockTransport(handle)), retry=policy)


async def test_a_lease_that_lapsed_before_its_claim_was_answered_is_renewed_before_the_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeSemel(lease=30)
    clock = Clock(fake, monkeypatch)

    def handle(request: httpx.Request) -> httpx.Response:
        response = fake.transport.handle_request(request)
        if fake.calls == ["claim"]:
            clock.advance(35)
            raise httpx.ReadTimeout("lost by the test")
        return response

    async def effect(_: AsyncLease | None) -> list[str]:
        return list(fake.calls)

    async with over(fake, handle) as semel:
        assert (await semel.run("charge", "k", effect)).value == ["claim", "claim", "renew"]


async def test_nothing_starts_under_a_renewal_that_was_answered_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSemel(lease=30)
    clock = Clock(fake, monkeypatch)

    def handle(request: httpx.Request) -> httpx.Response:
        response = fake.transport.handle_request(request)
        if fake.calls in (["claim"], ["claim", "claim", "renew"]):
            clock.advance(35)
        if fake.calls == ["claim"]:
            raise httpx.ReadTimeout("lost by the test")
        return response

    async def effect(_: AsyncLease | None) -> list[str]:
        return list(fake.calls)

    async with over(fake, handle) as semel:
        result = await semel.run("charge", "k", effect, terms=Terms(crash="hold"))
    assert result.value == ["claim", "claim", "renew", "settle", "claim"], "it is let go, and asked for anew"


async def test_an_effect_whose_answer_is_no_json_is_told_as_unrecorded_where_the_server_is_away() -> None:
    fake, value = FakeSemel(lease=0.3), object()

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("settle"):
            raise httpx.ConnectError("away")
        return fake.transport.handle_request(request)

    async def effect(_: AsyncLease | None) -> object:
        return value

    async with over(fake, handle) as semel:
        with pytest.raises(Unrecorded) as unrecorded:
            await semel.run("charge", "k", effect)
    assert unrecorded.value.value is value
