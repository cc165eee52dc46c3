"""The engine in this process: the same answers as a sidecar's, threads and asyncio, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2 as httpx
import pytest

import semel
from semel import AsyncSemel, Conflict, GaveUp, OpenError, ProblemError, RetryPolicy, Semel, Terms, new_key, open_async
from semel._engine import EmbeddedStore, StoreApi
from support import servers
from support.servers import new_environment, postgres_url, redis_url

VECTORS = Path(__file__).parents[3] / "spec" / "vectors"
URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    "sqlite": lambda folder: f"sqlite://{folder}/keys.db",
    "redis": lambda _: redis_url(),
    "postgres": lambda _: postgres_url(),
}


@pytest.fixture(params=list(URLS))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    return URLS[request.param](tmp_path)


def test_each_store_runs_once_and_replays(url: str) -> None:
    environment, key, runs = new_environment(), new_key(), list[int]()

    def effect(lease: Any) -> dict[str, Any]:
        runs.append(lease.fence)
        return {"key": lease.derive_key("psp")}

    with semel.open(url, environment=environment) as once:
        first, again = (once.run("charge", key, effect, payload={"cents": 5}) for _ in range(2))
        assert (first.replayed, again.replayed, first.value) == (False, True, again.value)
        with pytest.raises(Conflict):
            once.run("charge", key, effect, payload={"cents": 6})
        view = once.api.lookup({"scope": "charge", "key": key})
        assert view is not None
        assert (view["status"], view["answer"]["body"]) == ("completed", first.value)
    assert len(runs) == 1


async def test_each_store_runs_once_for_coroutines(url: str) -> None:
    runs: list[int] = []

    async def effect(_: object) -> int:
        await asyncio.sleep(0.05)
        runs.append(1)
        return len(runs)

    async with open_async(url, environment=new_environment()) as once:
        results = await asyncio.gather(*(once.run("charge", "k", effect) for _ in range(8)))
    assert [result.value for result in results] == [1] * 8


REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "v1/claims", {"scope": "charge", "key": "k-1", "token": "0" * 32, "payload": {"a": 1}, "derive": ["psp"]}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-1", "token": "0" * 32, "payload": {"a": 1}}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-1", "payload": {"a": 2}}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-1", "payload": {"a": 1}, "policy": {"on_busy": "refuse"}}),
    ("POST", "v1/claims", {"scope": "charge", "key": "a b"}),
    ("POST", "v1/claims", {"scope": "", "key": "k-2"}),
    ("POST", "v1/claims", {"scope": "charge"}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-2", "other": 1}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-2", "policy": {"lease_ms": 1}}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-2", "payload": 1, "fingerprint": "0" * 32}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-2", "derive": [str(name) for name in range(17)]}),
    ("POST", "v1/claims/{id}/keys", {"names": ["psp", "mail"]}),
    ("POST", "v1/claims/{id}/keys", {"names": []}),
    ("GET", "v1/claims/{id}", None),
    ("GET", "v1/claims/{id}?wait_ms=x", None),
    ("GET", "v1/claims/nothing", None),
    ("GET", f"v1/claims/{'0' * 64}", None),
    ("POST", "v1/claims/{id}/renew", {"token": "0" * 32, "fence": 1, "checkpoint": {"page": 1}}),
    ("POST", "v1/claims/{id}/renew", {"token": "1" * 32, "fence": 1}),
    ("POST", "v1/claims/{id}/settle", {"token": "1" * 32, "fence": 1, "outcome": "complete", "answer": {"body": 1}}),
    ("POST", "v1/claims/{id}/settle", {"token": "0" * 32, "fence": 1, "outcome": "release", "answer": {"body": 1}}),
    ("POST", "v1/claims/{id}/settle", {"token": "0" * 32, "fence": 1, "outcome": "complete", "answer": {"body": [1]}}),
    ("POST", "v1/claims/{id}/settle", {"token": "0" * 32, "fence": 1, "outcome": "complete", "answer": {"body": [1]}}),
    ("POST", "v1/claims", {"scope": "charge", "key": "k-1", "payload": {"a": 1}}),
    ("POST", "v1/lookups", {"scope": "charge", "key": "k-1", "payload": {"a": 1}}),
    ("POST", "v1/lookups", {"scope": "charge", "key": "k-1", "payload": {"a": 2}}),
    ("POST", "v1/lookups", {"scope": "charge", "key": "never"}),
    ("DELETE", "v1/claims", None),
]
VOLATILE = {"fence", "took_ms", "expires_in_ms", "original_time", "settled_time", "retryAfterMs", "instance"}


def steady(value: Any) -> Any:
    """Without what two runs never share."""
    if isinstance(value, dict):
        return {name: steady(member) for name, member in value.items() if name not in VOLATILE}
    return [steady(member) for member in value] if isinstance(value, list) else value


def told_fence(body: Any, fence: int) -> Any:
    """The request with the fence of that store in place of 1: its clock decides where fences begin."""
    return {**body, "fence": fence} if body.get("fence") == 1 else body


def test_the_same_requests_get_the_same_answers_both_ways() -> None:
    environment = new_environment()
    settings = ("--set", f"environment={environment}")
    with servers.sidecar("http://127.0.0.1:9", *settings, store="memory://") as way, httpx.Client() as http:
        store = EmbeddedStore(
            "memory://", {"environment": environment, "secret": None, "secret_id": 1, "encryption_keys": None}
        )
        claim_id, fences, codes = "", [0, 0], set()
        for method, path, body in REQUESTS:
            at = path.replace("{id}", claim_id)
            contents = [None if body is None else json.dumps(told_fence(body, fence)).encode() for fence in fences]
            headers = {"Content-Type": "application/json"} if body is not None else {}
            far = http.request(method, f"{way}/_semel/{at}", content=contents[0], headers=headers)
            near = store.call(method, at, contents[1], 30.0)
            told = [json.loads(answer.content) for answer in (far, near)]
            assert near.status_code == far.status_code, (method, path, told)
            assert steady(told[1]) == steady(told[0])
            assert near.headers["content-type"] == far.headers["content-type"]
            assert ("retry-after" in near.headers) == ("retry-after" in far.headers)
            claim_id = claim_id or told[1]["id"]
            fences = [fence or answer["fence"] for fence, answer in zip(fences, told, strict=True)]
            codes.add(told[1].get("code", "none"))
        store.close()
    assert len(codes) >= 9, codes


def test_a_request_that_is_too_large_is_refused() -> None:
    with semel.open("memory://") as once, pytest.raises(ProblemError) as refused:
        once.run("big", "k", lambda _: 1, payload="x" * 3_000_000)
    assert (refused.value.status, refused.value.code) == (413, "idempotency_body_too_large")


def test_a_sidecar_and_a_process_share_a_store() -> None:
    environment, secret = new_environment(), "one secret of 16 bytes"
    with tempfile.NamedTemporaryFile() as file:
        file.write(secret.encode() + b"\n")
        file.flush()
        settings = ("--set", f"environment={environment}", "--set", f"store.secret_file={file.name}")
        with (
            servers.sidecar("http://127.0.0.1:9", *settings) as way,
            Semel(f"{way}/_semel") as far,
            semel.open(redis_url(), environment=environment, secret=secret) as near,
        ):
            assert far.run("charge", "k-1", lambda _: "far").value == "far"
            assert near.run("charge", "k-1", lambda _: "near").value == "far"
            assert near.run("charge", "k-2", lambda _: "near").value == "near"
            assert far.run("charge", "k-2", lambda _: "far").value == "near"


def identities() -> list[Any]:
    """The cases that the protocol API takes: it knows no principals, and names of printable ASCII only."""
    cases = json.loads((VECTORS / "identity.json").read_text())["cases"]
    taken = [case for case in cases if not case["principal"] and (case["scope"] + case["tenant"]).isascii()]
    taken = [case for case in taken if (case["scope"] + case["tenant"]).isprintable()]
    assert len(taken) >= 8
    return taken


@pytest.mark.parametrize("case", identities())
def test_identities_are_those_of_the_vectors(case: Any) -> None:
    settings: Any = {"environment": case["environment"]}
    if case["secret"]:
        settings |= {"secret": bytes.fromhex(case["secret"]["material"]), "secret_id": case["secret"]["id"]}
    with semel.open("memory://", tenant=case["tenant"] or None, **settings) as once:
        request: Any = {"scope": case["scope"], "key": case["key"], "token": "0" * 32}
        if case["tenant"]:
            request["tenant"] = case["tenant"]
        view, _ = once.api.claim(request)
    assert view["id"] == case["identity"]


@pytest.mark.parametrize(
    ("url", "settings", "says"),
    [
        ("nothing://", {}, "nothing"),
        ("redis://:hunter2@127.0.0.1:1", {}, ""),
        ("sqlite:///proc/no/such.db", {}, ""),
        ("memory://", {"secret": "short"}, "16"),
        ("memory://", {"environment": "x" * 1000}, ""),
        ("memory://", {"encryption_keys": "nonsense"}, "encryption_keys"),
    ],
)
def test_what_cant_be_opened_says_why(url: str, settings: Any, says: str) -> None:
    with pytest.raises(OpenError) as refused:
        semel.open(url, **settings)
    assert says in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "nonsense" not in str(refused.value)


def test_a_sidecars_url_is_a_sidecar(api: str) -> None:
    with semel.open(api) as once:
        assert not isinstance(once.api, StoreApi)
        assert once.run("charge", new_key(), lambda _: 1).value == 1
    with pytest.raises(ValueError, match="environment"):
        semel.open(api, environment="x")
    with pytest.raises(ValueError, match="token"):
        semel.open("memory://", token="0123456789abcdef")


def test_without_the_native_module_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "semel._native", None)
    monkeypatch.delattr(semel, "_native", raising=False)
    with pytest.raises(OpenError, match="semel serve"):
        semel.open("memory://")


def test_two_secrets_on_one_store_are_refused() -> None:
    environment = new_environment()
    semel.open(redis_url(), environment=environment, secret="one secret of 16 bytes").close()
    semel.open(redis_url(), environment=environment, secret=b"one secret of 16 bytes\n").close()
    with pytest.raises(OpenError):
        semel.open(redis_url(), environment=environment, secret="another secret, as long")


def test_encrypted_answers_are_read_with_their_key(tmp_path: Path) -> None:
    url, keys = f"sqlite://{tmp_path}/keys.db", "1:" + "ab" * 32
    for replayed in (False, True):
        with semel.open(url, encryption_keys=keys) as once:
            assert once.run("charge", "k", lambda _: "a plain answer").replayed == replayed
    for file in tmp_path.iterdir():
        # SQLite removes its log when the last connection is closed, which may be later.
        with contextlib.suppress(FileNotFoundError):
            assert b"a plain answer" not in file.read_bytes()


def test_a_closed_store_stays_closed() -> None:
    once = semel.open("memory://")
    once.close()
    once.close()
    with pytest.raises(RuntimeError, match="closed"):
        once.run("charge", "k", lambda _: 1)


def held(once: Semel, key: str, started: threading.Event, end: threading.Event) -> threading.Thread:
    """A run under way until `end`."""

    def effect(_: object) -> str:
        started.set()
        assert end.wait(60)
        return "held"

    def run() -> None:
        # Where the store was closed meanwhile, there is nobody to tell.
        with contextlib.suppress(RuntimeError):
            once.run("slow", key, effect)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    return thread


@pytest.fixture
def running() -> Iterator[tuple[Semel, str]]:
    """A store in memory, and a key that is running."""
    started, end = threading.Event(), threading.Event()
    once = semel.open("memory://", terms=Terms(wait=60), retry=RetryPolicy(attempt_timeout=90))
    thread = held(once, "held", started, end)
    yield once, "held"
    end.set()
    thread.join()
    once.close()


def test_closing_ends_the_calls_that_wait(running: tuple[Semel, str]) -> None:
    once, key = running
    told: list[BaseException] = []

    def waiting() -> None:
        try:
            once.run("slow", key, lambda _: None)
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=waiting)
    thread.start()
    time.sleep(0.3)
    once.close()
    thread.join()
    assert isinstance(told[0], RuntimeError)


def test_other_threads_run_while_one_waits(running: tuple[Semel, str]) -> None:
    once, key = running
    view = once.api.lookup({"scope": "slow", "key": key})
    assert view is not None
    looking = threading.Thread(target=once.api.look, args=(view["id"],), kwargs={"wait_ms": 2_000})
    looking.start()
    turns = 0
    while looking.is_alive():
        turns += 1
        time.sleep(0.001)
    looking.join()
    assert turns > 20, "a thread that waits must not hold the interpreter"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_ends_a_call_that_waits(running: tuple[Semel, str]) -> None:
    once, key = running

    class Interrupted(Exception):
        pass

    def handle(_: int, __: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Interrupted):
            once.run("slow", key, lambda _: None)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_attempt_has_its_time(running: tuple[Semel, str]) -> None:
    once, key = running
    view = once.api.lookup({"scope": "slow", "key": key})
    assert view is not None
    once.api.retry = RetryPolicy(max_attempts=2, base=0.001, attempt_timeout=0.1)
    with pytest.raises(GaveUp) as gave_up:
        once.api.look(view["id"], wait_ms=30_000)
    assert gave_up.value.attempts == 2
    assert "ReadTimeout" in gave_up.value.reason


async def waited(once: AsyncSemel, claim_id: str) -> None:
    await once.api.look(claim_id, wait_ms=30_000)


async def test_the_loop_goes_on_and_a_cancelled_call_ends(tmp_path: Path) -> None:
    async with open_async("memory://", terms=Terms(wait=60)) as once:
        started, end = asyncio.Event(), asyncio.Event()

        async def effect(_: object) -> None:
            started.set()
            await end.wait()

        first = asyncio.create_task(once.run("slow", "k", effect))
        await started.wait()
        view = await once.api.lookup({"scope": "slow", "key": "k"})
        assert view is not None
        second = asyncio.create_task(once.run("slow", "k", effect))
        third = asyncio.create_task(waited(once, view["id"]))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not any(task.done() for task in (first, second, third))
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        end.set()
        await first
        assert (await second).replayed


async def test_a_cancelled_call_ends_in_the_engine_too() -> None:
    """Ten may wait for a key at a time: more than that wait here, one after the other."""
    async with open_async("memory://") as once:
        view, _ = await once.api.claim({"scope": "slow", "key": "k", "token": "0" * 32})
        for _ in range(12):
            waiting = asyncio.create_task(waited(once, view["id"]))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        once.api.retry = RetryPolicy(base=0.01, total_timeout=2)
        found = await once.api.look(view["id"], wait_ms=10)
        assert found is not None
        assert found["status"] == "running"


async def test_closing_ends_the_calls_that_wait_for_coroutines() -> None:
    once = open_async("memory://", terms=Terms(wait=60))
    view, _ = await once.api.claim({"scope": "slow", "key": "k", "token": "0" * 32})
    waiting = asyncio.create_task(waited(once, view["id"]))
    await asyncio.sleep(0.1)
    await once.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await waiting


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """As the one of Windows is."""

    def add_reader(self, *_: Any) -> Any:  # type: ignore[override]
        raise NotImplementedError


def test_a_loop_that_watches_no_descriptors_uses_its_threads() -> None:
    async def effect(_: object) -> int:
        await asyncio.sleep(0.01)
        return 1

    async def main() -> list[bool]:
        async with open_async("memory://") as once:
            results = await asyncio.gather(*(once.run("charge", "k", effect) for _ in range(4)))
        return sorted(result.replayed for result in results)

    loop = LoopWithoutReaders()
    try:
        assert loop.run_until_complete(main()) == [False, True, True, True]
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_one_store_serves_one_loop_after_the_other() -> None:
    once = open_async("memory://")

    async def effect(_: object) -> int:
        return 1

    async def main() -> bool:
        return (await once.run("charge", "k", effect)).replayed

    assert [asyncio.run(main()) for _ in range(3)] == [False, True, True]
    asyncio.run(once.aclose())
