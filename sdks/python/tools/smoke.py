"""The wheel as it was built, in a clean environment, with a real sidecar: the program is the argument."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import socket
import subprocess
import sys
import time

import httpx

import semel
from semel.testing import FakeSemel


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main() -> None:
    """Runs one operation twice, on the fake server and on the real one."""
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
            replayed = [client.run("smoke", "k-1", lambda _: {"done": 1}).replayed for _ in range(2)]
            assert replayed == [False, True], replayed
    finally:
        sidecar.kill()
        sidecar.wait()
    print(f"semel {importlib.metadata.version('semel')} from its wheel: runs once")


if __name__ == "__main__":
    main()
