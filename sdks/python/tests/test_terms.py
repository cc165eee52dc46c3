"""Terms of one operation and those of all, keys from arguments, and what a lease is where nothing is enforced."""

from __future__ import annotations

from typing import Any

import pytest

from semel import (
    AsyncSemel,
    Conflict,
    KeyInvalid,
    Semel,
    SemelError,
    Terms,
    current_async_lease,
    current_lease,
)
from semel._lease import merged
from semel.testing import FakeSemel


def test_terms_of_one_operation_are_merged_into_those_of_all() -> None:
    all_of_them = Terms(crash="hold", lease=30, final=(ValueError,), on_error="doubt", compare="fingerprint")
    own = Terms(derive=("bank",), lease=5, on_error="retry")
    both = merged(own, all_of_them)
    assert (both.crash, both.lease, both.derive) == ("hold", 5, ("bank",))
    assert (both.final, both.on_error, both.compare) == ((ValueError,), "retry", "fingerprint")
    assert merged(None, all_of_them) is all_of_them


def test_a_crash_policy_of_the_client_holds_for_an_operation_with_terms_of_its_own() -> None:
    fake = FakeSemel()
    semel = fake.semel(terms=Terms(crash="hold"))

    @semel.idempotent("charge", key="{order}", terms=Terms(derive=("bank",)))
    def charge(order: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        charge("ord-1")
    assert fake.state("charge", "ord-1") == "in_doubt"


def test_a_key_is_made_of_arguments_by_name() -> None:
    fake = FakeSemel()
    semel, runs = fake.semel(), list[str]()

    @semel.idempotent("charge", key="charge-{order}-{cents}")
    def charge(order: str, cents: int = 5) -> str:
        runs.append(order)
        return order

    assert [charge("a"), charge(order="a"), charge("a", cents=5), charge("b")] == ["a", "a", "a", "b"]
    assert runs == ["a", "b"]
    assert fake.state("charge", "charge-a-5") == "completed"


@pytest.mark.parametrize("template", ["order", "{}", "{0}", "{nobody}", "{order"])
def test_a_key_that_names_no_argument_is_refused_before_anything_runs(template: str) -> None:
    with pytest.raises(TypeError):

        @FakeSemel().semel().idempotent("charge", key=template)
        def charge(order: str) -> None: ...


@pytest.mark.parametrize("value", [None, ""])
def test_a_key_of_an_argument_without_a_value_is_refused(value: str | None) -> None:
    @FakeSemel().semel().idempotent("charge", key="charge-{order}")
    def charge(order: str | None) -> None: ...

    with pytest.raises(KeyInvalid):
        charge(value)


def test_a_function_of_the_key_gets_positional_arguments_whatever_way_they_came() -> None:
    fake, runs = FakeSemel(), list[int]()

    @fake.semel().idempotent("charge", key=lambda order, *_: f"charge-{order}")
    def charge(order: str, cents: int) -> None:
        runs.append(cents)

    charge("1", 5)
    charge("1", cents=5)
    charge(cents=5, order="1")
    assert (runs, fake.state("charge", "charge-1")) == ([5], "completed")


async def test_a_coroutine_takes_such_keys_too() -> None:
    fake = FakeSemel()

    @fake.async_semel().idempotent("charge", key="charge-{order}")
    async def charge(order: str) -> int:
        return 1

    assert await charge(order="1") == 1
    assert fake.state("charge", "charge-1") == "completed"


def test_a_digest_of_ones_own_stands_for_the_payload() -> None:
    semel = FakeSemel().semel()
    values = [semel.run("charge", "k", lambda _: 1, fingerprint="ab" * 16).value for _ in range(2)]
    assert values == [1, 1]
    with pytest.raises(Conflict):
        semel.run("charge", "k", lambda _: 1, fingerprint="cd" * 16)


@pytest.fixture
def unprotected() -> Semel:
    """A server that observes the scope, or that fails open."""
    return FakeSemel(observes=True).semel()


@pytest.fixture
def aunprotected() -> AsyncSemel:
    """The same for asyncio."""
    return FakeSemel(observes=True).async_semel()


def test_what_runs_unprotected_has_no_lease(unprotected: Semel) -> None:
    seen: list[Any] = []

    @unprotected.idempotent("charge", key="{order}")
    def charge(order: str) -> int:
        seen.append(current_lease())
        return 1

    assert charge("ord-1") == 1
    with unprotected.operation("charge", "ord-1") as operation:
        seen += [operation.lease, current_lease()]
        assert not operation.replayed
        operation.complete(2)
    assert (seen, operation.value) == ([None] * 3, 2)
    with pytest.raises(SemelError):
        current_lease()


async def test_what_runs_unprotected_has_no_lease_in_a_task(aunprotected: AsyncSemel) -> None:
    seen: list[Any] = []

    @aunprotected.idempotent("charge", key="{order}")
    async def charge(order: str) -> int:
        seen.append(current_async_lease())
        return 1

    assert await charge("ord-1") == 1
    async with aunprotected.operation("charge", "ord-1") as operation:
        seen += [operation.lease, current_async_lease()]
    assert seen == [None] * 3
    with pytest.raises(SemelError):
        current_async_lease()
