"""The engine in processes that fork, are killed, and end; its threads and its memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import RetryPolicy, Semel, open_async
from support.servers import new_environment, postgres_url, python, redis_url

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux does")

QUICK = RetryPolicy(base=0.001, cap=0.05)
CALLS = int(os.environ.get("SEMEL_TEST_CALLS", "20000"))
FORKS = int(os.environ.get("SEMEL_TEST_FORKS", "200"))


def threads_now() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def threads_are_at_most(most: int) -> bool:
    """Waits for those that are about to end. One of them may have been counted before."""
    for _ in range(200):
        if threads_now() <= most:
            return True
        time.sleep(0.05)
    return False


def engine_threads() -> int:
    """Those of the runtime and of SQLite. The threads that renew leases are Python's."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        # One that has ended since it was listed counts no more.
        with contextlib.suppress(OSError):
            count += (task / "comm").read_text().startswith(("semel", "tokio", "sqlx"))
    return count


def kilobytes_now() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def in_child(work: Any) -> int:
    """The exit status of a child that does this."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(2)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def once(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store that parent and children share."""
    url = {"sqlite": f"sqlite://{tmp_path}/keys.db", "redis": "", "postgres": ""}[request.param]
    url = url or (redis_url() if request.param == "redis" else postgres_url())
    with semel.open(url, environment=new_environment(), retry=QUICK) as found:
        yield found


def test_parent_and_child_share_the_keys(once: Semel) -> None:
    assert not once.run("charge", "before", lambda _: 1).replayed
    assert in_child(lambda: once.run("charge", "before", lambda _: 2).value == 1) == 0
    assert in_child(lambda: not once.run("charge", "child", lambda _: 3).replayed) == 0
    assert once.run("charge", "child", lambda _: 4).value == 3
    assert in_child(lambda: in_child(lambda: once.run("charge", "child", lambda _: 5).value == 3) == 0) == 0


def test_no_thread_of_the_engine_runs_while_a_process_forks(once: Semel) -> None:
    once.run("charge", "k", lambda _: 1)
    seen: list[int] = []

    def look() -> None:
        if len(seen) < 2:
            seen.append(engine_threads())

    os.register_at_fork(before=look, after_in_parent=look)
    # Hooks of before run in the opposite order of their registration: this one comes first, and sees the threads.
    assert engine_threads() >= 2
    assert in_child(lambda: engine_threads() == 0) == 0
    assert seen[0] >= 2
    assert seen[1] == 0


def test_forks_while_other_threads_call(once: Semel) -> None:
    ended, runs, failed = threading.Event(), Counter[str](), list[BaseException]()

    def work(name: str) -> None:
        number = 0
        try:
            while not ended.is_set():
                number += 1
                key = f"{name}-{number}"
                for _ in range(2):
                    once.run("charge", key, lambda _: runs.update([key]), payload=name)  # noqa: B023
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    codes = [
        in_child(lambda: once.run("child", f"c-{number}", lambda _: number).value == number)  # noqa: B023
        for number in range(FORKS // 10)
    ]
    ended.set()
    for thread in threads:
        thread.join()
    assert (set(codes), failed) == ({0}, [])
    assert set(runs.values()) == {1}
    assert len(runs) >= 4


def test_many_forks() -> None:
    with semel.open("memory://", retry=QUICK) as once:
        once.run("charge", "k", lambda _: "parent's")
        before = threads_now()
        for number in range(FORKS):
            assert in_child(lambda: once.run("charge", "k", lambda _: "").value == "parent's") == 0
            assert once.run("charge", f"k-{number}", lambda _: number).value == number  # noqa: B023
        assert once.run("charge", "k", lambda _: "").value == "parent's", "a store in memory outlives a fork"
        assert threads_are_at_most(before)


LATE = """
import ctypes, gc, os, sys, semel
once = semel.open(sys.argv[1], environment=sys.argv[2])
once.run("charge", "k", lambda _: 1)
library = ctypes.PyDLL(None)
child = library.fork()
if child == 0:
    library.PyOS_AfterFork_Child()
    found = once.run("charge", "k", lambda _: 2).value
    gc.collect()
    os._exit(0 if found == 1 and once.run("charge", "c", lambda _: 3).value == 3 else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert once.run("charge", "c", lambda _: 4).value == 3, "the parent's connections still work"
"""


def test_a_fork_that_python_learns_of_too_late() -> None:
    """As uWSGI does it: the C library forks, and only the child is told. Other threads of Python may not run then."""
    process = python("-c", LATE, redis_url(), new_environment())
    assert process.wait(timeout=60) == 0


def charge(once: Semel, number: int) -> Any:
    return once.run("charge", f"k-{number % 10}", lambda _: os.getpid()).value


SHARED: dict[str, Semel] = {}


def charge_shared(number: int) -> Any:
    return charge(SHARED["once"], number)


def test_a_pool_of_forked_workers() -> None:
    with semel.open(redis_url(), environment=new_environment(), retry=QUICK) as once:
        SHARED["once"] = once
        charge(once, 0)
        with multiprocessing.get_context("fork").Pool(4) as pool:
            values = pool.map(charge_shared, range(100))
        assert len({(number % 10, value) for number, value in enumerate(values)}) == 10
        assert values[0] == os.getpid()


async def test_a_fork_while_coroutines_wait() -> None:
    async with open_async(redis_url(), environment=new_environment(), retry=QUICK) as once:
        started, end = asyncio.Event(), asyncio.Event()

        async def effect(_: object) -> str:
            started.set()
            await end.wait()
            return "done"

        first = asyncio.create_task(once.run("slow", "k", effect))
        await started.wait()
        second = asyncio.create_task(once.run("slow", "k", effect))
        await asyncio.sleep(0.1)
        assert in_child(lambda: True) == 0
        end.set()
        assert [(await task).value for task in (first, second)] == ["done", "done"]


def test_threads_and_memory_stay_flat() -> None:
    def calls(once: Semel, count: int) -> None:
        for number in range(count):
            once.run("charge", f"k-{number % 100}", lambda _: {"n": 1}, payload={"n": number % 100})

    async def acalls(count: int) -> None:
        async def effect(_: object) -> int:
            return 1

        async with open_async("memory://?capacity=1000") as once:
            for number in range(count):
                await once.run("charge", f"k-{number % 100}", effect)

    with semel.open("memory://?capacity=1000") as once:
        calls(once, CALLS // 2)
        asyncio.run(acalls(CALLS // 10))
        gc.collect()
        threads, kilobytes = threads_now(), kilobytes_now()
        calls(once, CALLS)
        for _ in range(5):
            asyncio.run(acalls(CALLS // 20))
        for _ in range(20):
            semel.open("memory://").close()
        gc.collect()
        assert threads_are_at_most(threads)
        assert kilobytes_now() < kilobytes + 8_192


ENDS = """
import sys, threading, semel
once = semel.open("memory://", terms=semel.Terms(wait=60))
started = threading.Event()
def effect(_):
    started.set()
    threading.Event().wait(60)
threading.Thread(target=once.run, args=("slow", "k", effect), daemon=True).start()
started.wait()
for _ in range(4):
    threading.Thread(target=once.run, args=("slow", "k", effect), daemon=True).start()
def busy():
    number = 0
    while True:
        number += 1
        once.run("quick", f"k-{number}", lambda _: 1)
for _ in range(2):
    threading.Thread(target=busy, daemon=True).start()
import time
time.sleep(0.3)
sys.stderr = open("/dev/null", "w")
"""


def test_a_process_ends_while_its_threads_are_in_calls() -> None:
    for _ in range(5):
        process = python("-c", ENDS, stderr=subprocess.PIPE)
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (0, b"")


def test_a_process_ends_that_never_closes_its_store() -> None:
    lines = "import asyncio, semel\nonce = semel.open('memory://')\nonce.run('s', 'k', lambda _: 1)\n"
    lines += "a = semel.open_async('memory://')\nasyncio.run(a.api.lookup({'scope': 's', 'key': 'k'}))\n"
    process = python("-c", lines, stderr=subprocess.PIPE)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, b"")


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_two_thousand_calls_of_a_process_that_is_killed(kind: str, tmp_path: Path) -> None:
    """Under `hold`, nothing runs twice; what was under way when the process died is in doubt, and nothing else is."""
    threads, kills, keys = 8, 4, 1000
    url = redis_url() if kind == "redis" else f"sqlite://{tmp_path}/keys.db"
    effects, answers = tmp_path / "effects", tmp_path / "answers"
    child = str(Path(__file__).parent / "support" / "engine_child.py")
    arguments = (child, url, new_environment(), str(effects), str(answers), str(keys), str(threads))

    def lines(file: Path) -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    for kill in range(kills):
        with python(*arguments) as process:
            most = (kill + 1) * keys // (kills + 1)
            while len(lines(effects)) < most and process.poll() is None:
                threading.Event().wait(0.01)
            assert process.poll() is None, "it was to be killed at work"
            process.kill()
    last = python(*arguments)
    assert last.wait(timeout=300) == 0
    ran = Counter(lines(effects))
    assert set(ran.values()) == {1}
    told: dict[str, set[str]] = {}
    for line in lines(answers):
        found = json.loads(line)
        told.setdefault(found["key"], set()).add(found["answer"])
    assert len(told) == keys
    doubts = [key for key, answers_of in told.items() if answers_of == {"in doubt"}]
    assert len(doubts) <= threads * kills
    assert all(len(answers_of) == 1 for answers_of in told.values()), "one answer for all who ask"
    assert set(ran) | set(doubts) == set(told)
