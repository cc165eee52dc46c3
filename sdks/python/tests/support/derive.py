"""What servers derive by the protocol: fingerprints (P3), identities (P2), downstream keys (P42).

No client needs it; it shows that the vectors hold in Python.
"""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

from semel._fingerprint import Part
from semel.canonical import canonicalize

_CONTEXTS = {
    "identity": "semel v1 identity",
    "fingerprint": "semel v1 fingerprint",
    "downstream": "semel v1 downstream key",
}


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
