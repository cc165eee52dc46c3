"""Real processes and real sockets: the sidecar in front of a service that counts what it does."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx

HERE = Path(__file__).parents[2]


def needs(variable: str, how: str) -> str:
    value = os.environ.get(variable)
    assert value, f"{variable} is not set: see `{how}`"
    return value


def redis_url() -> str:
    return needs("SEMEL_TEST_REDIS_URL", "cargo xtask services up redis")


def postgres_url() -> str:
    return needs("SEMEL_TEST_POSTGRES_URL", "cargo xtask services up postgres")


def new_environment() -> str:
    """Keys that no other test has."""
    return f"sdk-{secrets.token_hex(6)}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def python(*arguments: str, env: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[bytes]:
    """A process that has this package and these tests."""
    path = os.pathsep.join(str(HERE / folder) for folder in ("src", "tests", "examples"))
    full = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    return subprocess.Popen([sys.executable, *arguments], env=full, **more)


def until_answered(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, f"it ended at its start: {url}"
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"it never answers: {url}")


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def sidecar(upstream: str = "http://127.0.0.1:9", *more: str, store: str | None = None) -> Iterator[str]:
    """The real program on the real Redis, in a namespace of its own."""
    program = needs("SEMEL_TEST_PROGRAM", "cargo xtask sdks")
    address = f"127.0.0.1:{free_port()}"
    command = [program, "serve", "--upstream", upstream, "--store", store or redis_url(), "--listen", address]
    command += ["--set", f"environment={new_environment()}", "--set", "api.access=loopback"]
    command += ["--set", "log.level=error", *more]
    with running(subprocess.Popen(command)) as process:
        until_answered(f"http://{address}/_semel/readyz", process)
        yield f"http://{address}"


class Payments(ThreadingHTTPServer):
    """Charges cards, as often as it is asked to. `effects` counts by order, `keys` remembers what came with it."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.effects: Counter[str] = Counter()
        self.receipts: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Payments

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = str(order["order"])
        with self.server.lock:
            self.server.effects[name] += 1
            receipt = self.server.receipts[name] = secrets.token_hex(8)
        time.sleep(float(order.get("seconds", 0)))
        body = json.dumps({"order": name, "receipt": receipt}).encode()
        self.send_response(int(order.get("status", 201)))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def payments() -> Iterator[Payments]:
    server = Payments()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
