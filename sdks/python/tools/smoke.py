"""The wheel as it was built, in a clean environment, with the engine in it and with a real sidecar: the program is the
argument."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import socket
import subprocess
import sys
import tempfile
import time

import httpx2 as httpx

import semel
from semel.testing import FakeSemel


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def runs_once(client: semel.Semel) -> None:
    """Runs one operation twice."""
    replayed = [client.run("smoke", "k-1", lambda _: {"done": 1}).replayed for _ in range(2)]
    assert replayed == [False, True], replayed


def main() -> None:
    """On the fake server, on stores in this process, and on a sidecar."""
    with tempfile.TemporaryDirectory() as folder:
        for store in ("memory://", f"sqlite://{folder}/keys.db"):
            with semel.open(store) as client:
                runs_once(client)
    assert (importlib.resources.files("semel") / "py.typed").is_file(), "no py.typed in the wheel"
    port = free_port()
    command = [sys.argv[1], "serve", "--upstream", "http://127.0.0.1:9", "--store", "memory://"]
    command += ["--listen", f"127.0.0.1:{port}", "--set", "api.access=loopback", "--set", "log.level=error"]
    sidecar = subprocess.Popen(command)
    try:
        url = f"http://127.0.0.1:{port}/_semel"
        for _ in range(600):
            try:
                httpx.get(f"{url}/readyz").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.05)
        for client in (FakeSemel().semel(), semel.Semel(url)):
            runs_once(client)
    finally:
        sidecar.kill()
        sidecar.wait()
    print(f"semel {importlib.metadata.version('semel')} from its wheel: runs once")


if __name__ == "__main__":
    main()
