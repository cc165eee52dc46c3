"""The packed record, version 1: what a store keeps for a key. No client reads one; it shows that the vectors hold in
Python."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

STATES = ("running", "completed", "failed", "in_doubt", "released")
CRASH = ("takeover", "hold")
_HEADER = struct.Struct("<BBB17s16sQ16sIQQQHHHH")
_CHECKPOINT, _HEAD, _BODY, _OMITTED, _ELSEWHERE, _OPTIONAL = 1, 2, 3, 4, 5, 128
_LABEL_BYTES = 128
_HINT_BYTES = 8


class RecordInvalid(ValueError):
    """`reason` is `unknown_version`, `unknown_section`, `malformed` or `foreign`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not the record asked for: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Answer:
    """What is replayed. `body` is `None` where only its length is kept; with a `digest`, it lies elsewhere."""

    head: bytes
    body: bytes | None
    omitted_bytes: int | None = None
    digest: bytes | None = None


@dataclass(frozen=True)
class Record:
    """The fields, in the order of the specification."""

    state: str
    crash: str
    fingerprint: bytes
    seal: bytes
    fence: int
    token: bytes
    lease_ms: int
    retention_ms: int
    created_us: int
    written_us: int
    attempt: int
    max_attempts: int
    secret_id: int
    environment: str
    tenant: str
    scope: str
    hint: str
    checkpoint: bytes = b""
    answer: Answer | None = None


def pack(record: Record) -> bytes:
    """The one packed form of a record."""
    parts = [part.encode() for part in (record.environment, record.tenant, record.scope, record.hint)]
    label = b"".join(bytes([len(part)]) + part for part in parts)
    out = _HEADER.pack(
        1,
        STATES.index(record.state) + 1,
        CRASH.index(record.crash) + 1,
        record.fingerprint,
        record.seal,
        record.fence,
        record.token,
        record.lease_ms,
        record.retention_ms,
        record.created_us,
        record.written_us,
        record.attempt,
        record.max_attempts,
        record.secret_id,
        len(label),
    )
    out += label
    if record.checkpoint:
        out += _section(_CHECKPOINT, record.checkpoint)
    if record.answer is not None:
        out += _section(_HEAD, record.answer.head)
        if record.answer.body is not None:
            out += _section(_BODY, record.answer.body)
        else:
            size = (record.answer.omitted_bytes or 0).to_bytes(8, "little")
            digest = record.answer.digest
            out += _section(_OMITTED, size) if digest is None else _section(_ELSEWHERE, size + digest)
    return out


def _section(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + len(data).to_bytes(4, "little") + data


def unpack(packed: bytes, seal: bytes | None = None) -> Record:
    """The record, or `RecordInvalid`; with a `seal`, that key's record and no other (P24)."""
    if packed[:1] not in (b"", b"\x01"):
        raise RecordInvalid("unknown_version")
    if len(packed) < _HEADER.size:
        raise RecordInvalid("malformed")
    (_, state, crash, *fields, label_size) = _HEADER.unpack_from(packed)
    if not 1 <= state <= len(STATES) or not 1 <= crash <= len(CRASH):
        raise RecordInvalid("malformed")
    labels, at = _labels(packed, label_size)
    sections = _sections(packed, at)
    answer = _answer(sections)
    name = STATES[state - 1]
    if (name in ("completed", "failed")) != (answer is not None):
        raise RecordInvalid("malformed")
    values: list[Any] = [name, CRASH[crash - 1], *fields, *labels, sections.get(_CHECKPOINT, b""), answer]
    record = Record(*values)
    if seal is not None and record.seal != seal:
        raise RecordInvalid("foreign")
    return record


def _labels(packed: bytes, size: int) -> tuple[list[str], int]:
    at, labels = _HEADER.size, []
    for most in (_LABEL_BYTES, _LABEL_BYTES, _LABEL_BYTES, _HINT_BYTES):
        length = packed[at] if at < len(packed) else 0
        part = packed[at + 1 : at + 1 + length]
        if at >= len(packed) or len(part) != length or length > most:
            raise RecordInvalid("malformed")
        try:
            text = part.decode()
        except UnicodeDecodeError:
            raise RecordInvalid("malformed") from None
        if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in text):
            raise RecordInvalid("malformed")
        labels.append(text)
        at += 1 + length
    if at - _HEADER.size != size or not labels[2]:
        raise RecordInvalid("malformed")
    return labels, at


def _sections(packed: bytes, at: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    last = 0
    while at < len(packed):
        tag = packed[at]
        length = int.from_bytes(packed[at + 1 : at + 5], "little")
        data = packed[at + 5 : at + 5 + length]
        if tag <= last or len(packed) < at + 5 or len(data) != length or (tag == _CHECKPOINT and not data):
            raise RecordInvalid("malformed")
        if _ELSEWHERE < tag < _OPTIONAL:
            raise RecordInvalid("unknown_section")
        found[tag], last = data, tag
        at += 5 + length
    return found


def _answer(sections: dict[int, bytes]) -> Answer | None:
    head = sections.get(_HEAD)
    bodies = [(tag, sections[tag]) for tag in (_BODY, _OMITTED, _ELSEWHERE) if tag in sections]
    if head is None and not bodies:
        return None
    if head is None or len(bodies) != 1:
        raise RecordInvalid("malformed")
    tag, data = bodies[0]
    if tag == _BODY:
        return Answer(head, data)
    if len(data) != (8 if tag == _OMITTED else 40):
        raise RecordInvalid("malformed")
    return Answer(head, None, int.from_bytes(data[:8], "little"), data[8:] or None)
