"""A JSON member as it was written: an answer of HTTP is replayed byte for byte, and a value has lost that."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, cast

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def member_text(text: str, path: tuple[str, ...]) -> str | None:
    """The text of the value at `path` inside a JSON object, or nothing."""
    start, end = _skip(text, 0), len(text)
    for name in path:
        span = _member(text, start, name)
        if span is None:
            return None
        start, end = span
    return text[start:end]


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _member(text: str, at: int, wanted: str) -> tuple[int, int] | None:
    if text[at : at + 1] != "{":
        return None
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        name, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        if name == wanted:
            return start, end
        at = _skip(text, _skip(text, end) + 1)
    return None


def keep_bytes(view: Mapping[str, Any], content: bytes, path: tuple[str, ...] = ()) -> None:
    """Puts the body's own bytes beside its value, as `body_base64`."""
    answer = view.get("answer")
    if isinstance(answer, dict) and "body" in answer:
        text = member_text(content.decode(), (*path, "answer", "body"))
        if text is not None:
            cast(MutableMapping[str, Any], answer)["body_base64"] = base64.b64encode(text.encode()).decode()
