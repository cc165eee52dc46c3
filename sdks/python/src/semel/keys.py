"""Keys: made once, before the first attempt, and kept for all of them (rule P1)."""

from __future__ import annotations

import re
import uuid

from .errors import KeyInvalid

MAX_BYTES = 255
"""The longest key, unless the server's rules say otherwise."""

LONGEST = 1024
"""No rules take more."""

_LETTERS = "A-Za-z0-9_."
_SF_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')


def new_key(prefix: str = "idem_") -> str:
    """A key for a new operation. Make it when the operation begins, keep it for every retry.

    >>> new_key() != new_key()
    True
    """
    return check_key(prefix + str(uuid.uuid4()))


def check_key(text: str, *, max_bytes: int = MAX_BYTES, extra: str = ":") -> str:
    """The same text, or `KeyInvalid`: looked at in the order empty, too long, characters.

    >>> check_key("ord-123")
    'ord-123'
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size == 0:
        raise KeyInvalid("empty")
    if size > min(max_bytes, LONGEST):
        raise KeyInvalid("too_long")
    allowed = re.compile(f"[{_LETTERS}{re.escape(extra)}-]+")
    if allowed.fullmatch(text) is None:
        raise KeyInvalid("character")
    return text


def key_of_header(lines: list[str]) -> str | None:
    """The key in the lines of an `Idempotency-Key` header: one line, quoted (a structured field) or bare.

    `None` where there is no line; two lines could be read in two ways, and are refused.
    """
    if not lines:
        return None
    if len(lines) > 1:
        raise KeyInvalid("character")
    line = lines[0].strip(" \t")
    if line.startswith('"'):
        quoted = _SF_STRING.fullmatch(line)
        if quoted is None:
            raise KeyInvalid("character")
        line = re.sub(r"\\(.)", r"\1", quoted.group(1))
    return check_key(line)
