"""Servers that several tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import servers


@pytest.fixture(scope="session")
def payments() -> Iterator[servers.Payments]:
    """A service that counts."""
    with servers.payments() as service:
        yield service


@pytest.fixture(scope="session")
def sidecar(payments: servers.Payments) -> Iterator[str]:
    """The real sidecar in front of it."""
    with servers.sidecar(payments.url) as url:
        yield url


@pytest.fixture(scope="session")
def api(sidecar: str) -> str:
    """Where its protocol API is."""
    return f"{sidecar}/_semel"
