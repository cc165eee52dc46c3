"""Digests of payloads that stay in this process: SHA-256 over the framing of rule P3.

The server takes them as they are (`fingerprint` of a claim). They are not those that it computes of a payload itself,
so all callers of a scope either send payloads or send these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .canonical import canonical_of, canonicalize

_PREFIX = b"semel client fingerprint 1\0"


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


def fingerprint(parts: Iterable[Part]) -> str:
    """The digest, in hexadecimal digits. `PayloadInvalid` where a JSON part can't be compared."""
    hasher = hashlib.sha256(_PREFIX)
    for part in parts:
        data = canonicalize(part.data) if part.kind == "json" else part.data
        hasher.update(bytes([part.kind == "json"]) + len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def fingerprint_of(value: Any) -> str:
    """The fingerprint of one JSON value, as a claim takes it.

    >>> fingerprint_of({"b": 1, "a": 2}) == fingerprint_of({"a": 2.0, "b": 1})
    True
    """
    return fingerprint([Part("json", canonical_of(value))])
