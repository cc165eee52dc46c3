"""A proxy that does to requests what networks do: drops, delays, duplicates, truncates. From a seed."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

FAULTS = {
    "none": 50,
    "refuse": 8,  # closed before anything went on
    "drop_request": 8,  # read, and never passed on
    "drop_response": 12,  # passed on, and the answer thrown away
    "truncate": 10,  # half of the answer
    "duplicate": 8,  # passed on twice
    "delay": 4,  # longer than the client waits
}


class Chaos:
    """One loop in a thread of its own. `keys` has every key by the order that it came with."""

    def __init__(self, upstream: str, seed: int, delay: float) -> None:
        host, _, port = upstream.removeprefix("http://").partition(":")
        self._upstream = (host, int(port))
        self._random = random.Random(seed)
        self._delay = delay
        self.faults: Counter[str] = Counter()
        self.keys: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self.requests = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await stop.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self._random.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.faults[fault] += 1
        try:
            if fault != "refuse":
                await self._request(fault, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _request(self, fault: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        lower = {name.lower(): value for name, value in fields.items()}
        body = await reader.readexactly(int(lower.get(b"content-length", b"0")))
        self.requests += 1
        if key := lower.get(b"idempotency-key"):
            self.keys[body].add(key)
        if fault == "drop_request":
            return
        # One request a connection, so that an answer ends with it.
        lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
        sent = b"\r\n".join([*lines, b"Connection: close", b"", body])
        answer = await self._forward(sent)
        if fault == "duplicate":
            answer = await self._forward(sent)
        if fault == "drop_response":
            return
        if fault == "delay":
            await asyncio.sleep(self._delay)
        writer.write(answer[: len(answer) * 2 // 3] if fault == "truncate" else answer)
        await writer.drain()

    async def _forward(self, sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(sent)
            return await reader.read(-1)
        finally:
            writer.close()


@contextmanager
def chaos(upstream: str, *, seed: int, delay: float) -> Iterator[Chaos]:
    """The proxy in front of `upstream`."""
    proxy = Chaos(upstream, seed, delay)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        loop.run_until_complete(proxy.serve(ready, stop))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
