"""Functions that run once: against the real sidecar, and the fake one that this package ships for its users' tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
import pytest

from semel import (
    AnswerNotKept,
    Conflict,
    EffectFailed,
    Final,
    InDoubt,
    LeaseLost,
    NoEffect,
    RetryPolicy,
    Semel,
    Terms,
    Unknown,
    Unrecorded,
    current_lease,
    new_key,
)
from semel import open as semel_open
from semel._lease import LeaseState
from semel.testing import FakeSemel
from support.clock import Clock
from support.servers import new_environment, redis_url

QUICK = RetryPolicy(base=0.01, cap=0.1, total_timeout=30)
PATIENT = RetryPolicy(base=0.001, cap=0.01, total_timeout=600)


@pytest.fixture(params=["real", "inside", "fake"])
def semel(request: pytest.FixtureRequest) -> Iterator[Semel]:
    """One test for all: what holds for the sidecar has to hold for the engine in this process, and for the fake."""
    if request.param == "fake":
        with FakeSemel().semel() as client:
            yield client
    elif request.param == "inside":
        with semel_open(redis_url(), environment=new_environment(), retry=QUICK) as client:
            yield client
    else:
        with Semel(request.getfixturevalue("api"), retry=QUICK) as client:
            yield client


@dataclass
class Order:
    id: str
    cents: int


def test_a_decorated_function_runs_once(semel: Semel) -> None:
    runs: list[str] = []

    @semel.idempotent("charge", key=lambda order: order.id)
    def charge(order: Order) -> dict[str, Any]:
        lease = current_lease()
        assert lease is not None
        runs.append(lease.derive_key("psp"))
        return {"charge": f"ch_{len(runs)}", "pair": (1, 2)}

    order = Order(new_key(), 500)
    answers = [charge(order), charge(order=order), charge(order)]
    assert answers == [{"charge": "ch_1", "pair": [1, 2]}] * 3, "everybody gets what JSON gives back"
    assert len(runs) == 1
    with pytest.raises(Conflict):
        charge(Order(order.id, 501))


def test_callers_at_once_share_one_run(semel: Semel) -> None:
    runs: list[int] = []
    key = new_key()

    def effect(_: object) -> int:
        time.sleep(0.2)
        runs.append(1)
        return len(runs)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: semel.run("charge", key, effect), range(8)))
    assert [result.value for result in results] == [1] * 8
    assert sorted(result.replayed for result in results) == [False] + [True] * 7


def test_a_block_is_an_operation_too(semel: Semel) -> None:
    key = new_key()
    for replayed in (False, True):
        with semel.operation("charge", key, payload={"cents": 5}) as operation:
            assert operation.replayed == replayed
            if not operation.replayed:
                assert operation.lease is not None
                assert operation.lease.attempt == 1
                operation.complete({"charge": "ch_1"})
        assert operation.value == {"charge": "ch_1"}
    with pytest.raises(ZeroDivisionError), semel.operation("charge", new_key()) as operation:
        1 / 0  # noqa: B018


def raising(error: Exception, runs: list[int]) -> Callable[[object], None]:
    def effect(_: object) -> None:
        runs.append(1)
        if len(runs) == 1:
            raise error

    return effect


@pytest.mark.parametrize(
    ("error", "terms", "then"),
    [
        (ZeroDivisionError(), Terms(), "runs"),
        (ZeroDivisionError(), Terms(crash="hold"), "in doubt"),
        (ZeroDivisionError(), Terms(on_error="doubt"), "in doubt"),
        (ZeroDivisionError(), Terms(crash="hold", on_error="release"), "runs"),
        (ZeroDivisionError(), Terms(crash="hold", no_effect=(ArithmeticError,)), "runs"),
        (ZeroDivisionError(), Terms(final=(ArithmeticError,)), "failed"),
        (NoEffect(), Terms(crash="hold"), "runs"),
        (Unknown(), Terms(), "in doubt"),
        (Final({"why": "card"}), Terms(), "failed"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_an_error_says_decides_what_comes_next(semel: Semel, error: Exception, terms: Terms, then: str) -> None:
    runs: list[int] = []
    key, effect = new_key(), raising(error, runs)
    with pytest.raises(EffectFailed if then == "failed" else type(error)):
        semel.run("charge", key, effect, terms=terms)
    if then == "runs":
        assert not semel.run("charge", key, effect, terms=terms).replayed
        assert len(runs) == 2
        return
    with pytest.raises(InDoubt if then == "in doubt" else EffectFailed) as again:
        semel.run("charge", key, effect, terms=terms)
    assert len(runs) == 1
    if isinstance(again.value, EffectFailed):
        assert again.value.replayed
        expected = {"why": "card"} if isinstance(error, Final) else {"error": "ZeroDivisionError", "message": ""}
        assert again.value.answer == expected


def test_a_lease_is_renewed_while_the_effect_runs(semel: Semel) -> None:
    key, terms = new_key(), Terms(lease=3.0, wait=20.0)

    def effect(lease: Any) -> str:
        time.sleep(8)
        lease.check()
        return "done"

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(semel.run, "slow", key, effect, terms=terms)
        time.sleep(4)
        second = semel.run("slow", key, lambda _: "taken over", terms=terms)
    assert (first.result().value, second.value, second.replayed) == ("done", "done", True)


def test_a_checkpoint_reaches_whoever_runs_next(semel: Semel) -> None:
    key, terms = new_key(), Terms(lease=0.5)
    paused = threading.Event()

    class Vanished(BaseException):
        pass

    def vanishing(lease: Any) -> None:
        lease.save_checkpoint({"page": 3})
        lease._ended.set()
        lease.settle = lambda *_: None
        paused.set()
        raise Vanished

    with pytest.raises(Vanished):
        semel.run("export", key, vanishing, terms=terms)
    resumed = semel.run(
        "export", key, lambda lease: [lease.attempt, lease.last_checkpoint] if lease else None, terms=terms
    )
    assert resumed.value == [2, {"page": 3}]


def test_a_lease_that_was_taken_over_says_so_and_both_get_one_answer(semel: Semel) -> None:
    key, terms = new_key(), Terms(lease=0.5)

    def stalled(lease: Any) -> str:
        lease._ended.set()
        time.sleep(1.5)
        with pytest.raises(LeaseLost):
            lease.check()
        assert semel.run("charge", key, lambda _: "the other's", terms=terms).value == "the other's"
        return "mine"

    assert semel.run("charge", key, stalled, terms=terms).value == "the other's"


def test_answers_that_cant_be_kept_are_done_all_the_same(semel: Semel) -> None:
    runs: list[int] = []

    def effect(size: int) -> Callable[[object], Any]:
        def run(_: object) -> Any:
            runs.append(1)
            return "x" * size if size else object()

        return run

    for size in (0, 1024 * 1024 + 1):
        key = new_key()
        runs.clear()
        if size:
            assert len(semel.run("big", key, effect(size)).value) == size
        else:
            with pytest.raises(AnswerNotKept):
                semel.run("big", key, effect(size))
        with pytest.raises(AnswerNotKept):
            semel.run("big", key, effect(size))
        assert len(runs) == 1


def test_encode_and_decode_are_for_other_values(semel: Semel) -> None:
    key = new_key()
    results = [
        semel.run("order", key, lambda _: Order("a", 1), encode=vars, decode=lambda value: Order(**value))
        for _ in range(2)
    ]
    assert [result.value for result in results] == [Order("a", 1)] * 2


def test_downstream_keys_are_the_same_on_every_attempt(semel: Semel) -> None:
    key, seen = new_key(), []

    def effect(lease: Any) -> None:
        seen.append((lease.derive_key("psp"), lease.derive_key("mail")))
        if len(seen) < 2:
            raise NoEffect

    terms = Terms(derive=("psp",))
    with pytest.raises(NoEffect):
        semel.run("charge", key, effect, terms=terms)
    semel.run("charge", key, effect, terms=terms)
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]


def test_a_payload_may_stay_in_the_process(semel: Semel) -> None:
    key, terms = new_key(), Terms(compare="fingerprint")
    semel.run("charge", key, lambda _: 1, payload={"b": 1, "a": 2}, terms=terms)
    assert semel.run("charge", key, lambda _: 2, payload={"a": 2, "b": 1.0}, terms=terms).value == 1
    with pytest.raises(Conflict):
        semel.run("charge", key, lambda _: 3, payload={"a": 2}, terms=terms)


def test_lost_replies_cost_nothing_but_time() -> None:
    for lost in (1, 2, 3):
        fake, runs = FakeSemel(), []
        fake.lose_replies(lost)
        assert fake.semel().run("charge", "k", lambda _: runs.append(1)).value is None  # noqa: B023
        assert (len(runs), fake.state("charge", "k")) == (1, "completed")
        assert len(fake.calls) == 2 + lost


Met = Callable[[str, int], None]


def met(fake: FakeSemel, after: Met, before: Met = lambda *_: None) -> Semel:
    """A client whose every call is met on its way there and back, by what is asked and the how-manieth it is."""

    def handle(request: httpx.Request) -> httpx.Response:
        asked = request.url.path.rsplit("/", 1)[1].rstrip("s")
        before(asked, fake.calls.count(asked) + 1)
        response = fake.transport.handle_request(request)
        after(asked, fake.calls.count(asked))
        return response

    http = httpx.Client(transport=httpx.MockTransport(handle))
    return Semel("http://semel.test", http=http, retry=PATIENT)


def lost_for(seconds: float, clock: Clock) -> Met:
    """The first claim's reply is lost, and that is known only after a while."""

    def after(asked: str, number: int) -> None:
        if (asked, number) == ("claim", 1):
            clock.advance(seconds)
            raise httpx.ReadTimeout("lost by the test")

    return after


def test_a_lease_that_lapsed_before_its_claim_was_answered_is_renewed_before_the_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeSemel(lease=30)
    semel = met(fake, lost_for(35, Clock(fake, monkeypatch)))
    assert semel.run("charge", "k", lambda _: list(fake.calls)).value == ["claim", "claim", "renew"]
    assert fake.calls == ["claim", "claim", "renew", "settle"]


def test_a_lease_is_not_renewed_before_the_effect_where_a_reply_was_lost_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeSemel(lease=30)
    semel = met(fake, lost_for(5, Clock(fake, monkeypatch)))
    lefts = semel.run("charge", "k", lambda lease: lease.remaining if lease else 0).value
    assert fake.calls == ["claim", "claim", "settle"]
    assert 24 < lefts <= 25, "it is counted from the claim that was lost"


def test_nothing_starts_under_a_lease_that_another_took_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, runs = FakeSemel(lease=30), list[str]()

    def effect(who: str) -> Callable[[object], str]:
        return lambda _: runs.append(who) or who  # type: ignore[func-returns-value]

    def before(asked: str, number: int) -> None:
        if (asked, number) == ("renew", 1):
            assert fake.semel().run("charge", "k", effect("other")).value == "other"

    semel = met(fake, lost_for(35, Clock(fake, monkeypatch)), before)
    result = semel.run("charge", "k", effect("mine"))
    assert (result.value, result.replayed, runs) == ("other", True, ["other"])


def test_nothing_starts_under_a_renewal_that_was_answered_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSemel(lease=30)
    clock = Clock(fake, monkeypatch)
    lost = lost_for(35, clock)

    def after(asked: str, number: int) -> None:
        lost(asked, number)
        if (asked, number) == ("renew", 1):
            clock.advance(35)

    result = met(fake, after).run(
        "charge", "k", lambda lease: lease.attempt if lease else None, terms=Terms(crash="hold")
    )
    assert fake.calls == ["claim", "claim", "renew", "settle", "claim", "settle"], "it is let go, and asked for anew"
    assert result.value == 1


def test_an_effect_whose_answer_is_no_json_is_told_as_unrecorded_where_the_server_is_away() -> None:
    fake, value = FakeSemel(lease=0.3), object()

    def before(asked: str, _: int) -> None:
        if asked == "settle":
            raise httpx.ConnectError("away")

    with pytest.raises(Unrecorded) as unrecorded:
        met(fake, lambda *_: None, before).run("charge", "k", lambda _: value)
    assert unrecorded.value.value is value


def test_the_fake_leaves_a_lease_as_it_stands_where_its_claim_is_sent_again() -> None:
    fake = FakeSemel(lease=30)
    api = fake.semel().api
    mine, other = "0" * 32, "1" * 32
    first, _ = api.claim({"scope": "charge", "key": "k", "token": mine})
    fake.advance(20)
    again, _ = api.claim({"scope": "charge", "key": "k", "token": mine})
    assert again["lease"]["fence"] == first["lease"]["fence"]
    fake.advance(15)
    taken, _ = api.claim({"scope": "charge", "key": "k", "token": other})
    assert taken["lease"]["attempt"] == 2


def test_the_fakes_clock_is_the_tests() -> None:
    fake = FakeSemel(retention=60)
    semel = fake.semel()
    assert semel.run("charge", "k", lambda _: 1).value == 1
    fake.advance(59)
    assert semel.run("charge", "k", lambda _: 2).value == 1
    fake.advance(2)
    assert semel.run("charge", "k", lambda _: 3).value == 3


def test_the_pause_between_renewals_is_never_nothing() -> None:
    times = iter((0.0, 15.0, 20.0, 25.0, 29.0, 31.0))
    view: Any = {
        "id": "a" * 64,
        "lease": {"fence": 1, "attempt": 1, "renew_every_ms": 10_000, "token": "t", "expires_in_ms": 30_000},
    }
    lease = LeaseState(view, since=0.0, clock=lambda: next(times))
    assert [lease._pause() for _ in range(6)] == [10.0, 5.0, 1.0, 1.0, 1.0, 10.0]
