"""The same for asyncio, and what only asyncio has: cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from semel import AsyncLease, AsyncSemel, EffectFailed, Final, InDoubt, RetryPolicy, Terms, current_async_lease, new_key
from semel.testing import FakeSemel

QUICK = RetryPolicy(base=0.01, cap=0.1, total_timeout=30)


@pytest.fixture(params=["real", "fake"])
async def semel(request: pytest.FixtureRequest) -> AsyncIterator[AsyncSemel]:
    """One test for both."""
    if request.param == "fake":
        async with FakeSemel().async_semel() as client:
            yield client
    else:
        async with AsyncSemel(request.getfixturevalue("api"), retry=QUICK) as client:
            yield client


async def test_a_decorated_coroutine_runs_once(semel: AsyncSemel) -> None:
    runs: list[str] = []

    @semel.idempotent("charge", key=lambda order: order["id"])
    async def charge(order: dict[str, Any]) -> dict[str, str]:
        runs.append(await current_async_lease().derive_key("psp"))
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


async def test_a_lease_is_renewed_while_the_effect_runs(semel: AsyncSemel) -> None:
    key, terms = new_key(), Terms(lease=0.6, wait=10.0)

    async def slow(lease: AsyncLease | None) -> str:
        await asyncio.sleep(2)
        assert lease is not None
        lease.check()
        return "done"

    async def other(_: AsyncLease | None) -> str:
        return "taken over"

    first = asyncio.create_task(semel.run("slow", key, slow, terms=terms))
    await asyncio.sleep(1)
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
