"""Digests that every language computes alike: fingerprints (P3), identities (P2), downstream keys (P42).

A worker needs only `fingerprint_of`: it keeps a payload inside the process instead of sending it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from blake3 import blake3

from .canonical import canonical_of, canonicalize

_CONTEXTS = {
    "identity": "semel v1 identity",
    "fingerprint": "semel v1 fingerprint",
    "downstream": "semel v1 downstream key",
}


@dataclass(frozen=True)
class Part:
    """One part of a payload: its bytes as they are, or JSON by its meaning."""

    kind: Literal["raw", "json"]
    data: bytes

    @staticmethod
    def raw(data: bytes | str) -> Part:
        """Compared byte for byte."""
        return Part("raw", data.encode() if isinstance(data, str) else data)

    @staticmethod
    def json(text: bytes | str) -> Part:
        """Compared by its canonical form."""
        return Part("json", text.encode() if isinstance(text, str) else text)


def _hasher(use: str, material: bytes) -> blake3:
    key = blake3(material, derive_key_context=_CONTEXTS[use]).digest()
    return blake3(key=key)


def fingerprint(parts: Iterable[Part], material: bytes = b"") -> bytes:
    """Rule P3: a version byte and 16 bytes. `PayloadInvalid` where a JSON part can't be compared."""
    hasher = _hasher("fingerprint", material)
    for part in parts:
        data = canonicalize(part.data) if part.kind == "json" else part.data
        hasher.update(bytes([part.kind == "json"]) + len(data).to_bytes(8, "little"))
        hasher.update(data)
    return b"\x01" + hasher.digest(length=16)


def fingerprint_of(value: Any, material: bytes = b"") -> str:
    """The fingerprint of one JSON value, in hexadecimal digits, as a claim takes it.

    >>> fingerprint_of({"b": 1, "a": 2}) == fingerprint_of({"a": 2.0, "b": 1})
    True
    """
    return fingerprint([Part("json", canonical_of(value))], material).hex()


def _short_parts(use: str, material: bytes, parts: Iterable[bytes]) -> blake3:
    hasher = _hasher(use, material)
    for part in parts:
        hasher.update(len(part).to_bytes(4, "little"))
        hasher.update(part)
    return hasher


def identity(
    key: str, *, environment: str = "", tenant: str = "", scope: str = "", principal: str = "", material: bytes = b""
) -> bytes:
    """Rule P2: 32 bytes; the first 16 are the address, the last 16 the seal."""
    texts = [environment, tenant, scope, key, *([principal] if principal else [])]
    return _short_parts("identity", material, (text.encode() for text in texts)).digest()


def downstream_key(identity: bytes, step: str, material: bytes = b"") -> str:
    """Rule P42: the key to pass on to a system further down the road."""
    hasher = _short_parts("downstream", material, [identity, step.encode()])
    return "semel-" + hasher.digest(length=16).hex()
