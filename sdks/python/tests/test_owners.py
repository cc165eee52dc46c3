"""Owners in trouble: late leases, lost settlements, failures that can't be kept, answers that an operator wrote."""

from __future__ import annotations

import base64
import threading
import time
from decimal import Decimal
from typing import Any, cast

import httpx2 as httpx
import pytest

from semel import (
    AsyncSemel,
    EffectFailed,
    Final,
    LeaseLost,
    RetryBudget,
    RetryPolicy,
    Semel,
    SemelError,
    Terms,
    Unrecorded,
)
from semel._claims import value_of
from semel.api_types import ClaimView
from semel.testing import FakeSemel

FINAL = {"error": "declined"}


def declined(_: object) -> None:
    raise Final(FINAL)


def test_a_lease_whose_claim_was_answered_late_is_renewed_before_it_lapses() -> None:
    fake, runs, over = FakeSemel(lease=6), [], threading.Event()

    def held_up(request: httpx.Request) -> httpx.Response:
        response = fake._answer(request)
        if len(fake.calls) == 1:
            # Less than a third of the lease is left: who renews after a third comes too late.
            time.sleep(4.5)
            raise httpx.ReadError("lost, and late", request=request)
        return response

    def effect(_: object) -> str:
        runs.append(1)
        time.sleep(3)
        return "done"

    def others() -> None:
        while not over.wait(0.05):
            fake.semel().run("pay", "k", lambda _: runs.append(2), terms=Terms(wait=0))

    rivals = threading.Thread(target=others, daemon=True)
    http = httpx.Client(transport=httpx.MockTransport(held_up))
    with Semel("http://semel.test", http=http, retry=RetryPolicy(base=0.001)) as semel:
        threading.Timer(4.6, rivals.start).start()
        assert semel.run("pay", "k", effect).value == "done"
    over.set()
    assert runs == [1]


def test_a_failure_for_good_that_came_after_anothers_success_is_not_told() -> None:
    fake = FakeSemel()

    def overtaken(_: object) -> None:
        fake.advance(31)
        assert fake.semel().run("pay", "k", lambda _: "ch_1").value == "ch_1"
        raise Final(FINAL)

    with pytest.raises(LeaseLost):
        fake.semel().run("pay", "k", overtaken)
    assert fake.semel().run("pay", "k", declined).value == "ch_1"


async def test_a_failure_for_good_that_came_after_anothers_success_is_not_told_in_a_task() -> None:
    fake = FakeSemel()

    async def overtaken(_: object) -> None:
        fake.advance(31)
        assert fake.semel().run("pay", "k", lambda _: "ch_1").value == "ch_1"
        raise Final(FINAL)

    with pytest.raises(LeaseLost):
        await fake.async_semel().run("pay", "k", overtaken)


def test_a_failure_for_good_that_is_not_recorded_is_told_as_that() -> None:
    fake = FakeSemel(lease=0.3)

    def unheard(_: object) -> None:
        fake.lose_replies(10_000)
        raise Final(FINAL)

    with pytest.raises(Unrecorded) as told:
        fake.semel().run("pay", "k", unheard)
    assert told.value.value == FINAL


def test_a_failure_for_good_without_a_json_answer_is_kept() -> None:
    fake = FakeSemel()

    def failing(_: object) -> None:
        raise Final(Decimal(1))

    for _ in range(2):
        with pytest.raises(EffectFailed):
            fake.semel().run("pay", "k", failing)
    assert fake.calls.count("settle") == 1


@pytest.mark.parametrize("spent", [RetryBudget(0, 0)])
def test_a_settlement_is_sent_until_it_is_acknowledged_whatever_others_spent(spent: RetryBudget) -> None:
    fake = FakeSemel()

    def effect(_: object) -> str:
        fake.lose_replies(3)
        return "done"

    assert fake.semel(budget=spent).run("pay", "k", effect).value == "done"
    assert fake.state("pay", "k") == "completed"


async def test_a_settlement_of_a_task_is_sent_until_it_is_acknowledged() -> None:
    fake = FakeSemel()

    async def effect(_: object) -> str:
        fake.lose_replies(3)
        return "done"

    semel: AsyncSemel = fake.async_semel(budget=RetryBudget(0, 0))
    assert (await semel.run("pay", "k", effect)).value == "done"


def written(text: bytes) -> ClaimView:
    answer: dict[str, Any] = {"body_base64": base64.b64encode(text).decode()}
    return cast(ClaimView, {"status": "completed", "answer": answer})


def test_an_answer_that_an_operator_wrote_in_a_file_is_read() -> None:
    assert value_of(written(b'{"charge": "ch_1"}\n'), dict) == {"charge": "ch_1"}
    with pytest.raises(SemelError):
        value_of(written(b"no JSON"), dict)


def test_a_client_that_is_closed_under_its_effect_leaves_no_error_in_a_thread() -> None:
    semel = FakeSemel(lease=0.3).semel()

    def closing(_: object) -> None:
        semel.close()
        time.sleep(0.3)

    # The effect's own settlement can't be sent; the renewals end without a word, or pytest would show their error.
    with pytest.raises(RuntimeError):
        semel.run("pay", "k", closing)
