"""Canonical JSON (RFC 8785), strict: two texts with one meaning become the same bytes.

What could be read in two ways is refused: a member name given twice, a number that a double can't hold exactly, more
than 64 levels, and whatever isn't JSON.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from .errors import PayloadInvalid

MAX_DEPTH = 64
MAX_EXACT = 2**53 - 1

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
# Strings are stepped over whole, so that brackets inside them don't count.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def canonicalize(text: bytes | str) -> bytes:
    """The canonical form of a JSON text, or `PayloadInvalid`.

    >>> canonicalize('{ "b": 1.0, "a": "\\\\u0041" }')
    b'{"a":"A","b":1}'
    """
    try:
        string = text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError:
        raise PayloadInvalid("syntax") from None
    _check_depth(string)
    try:
        value = json.loads(
            string, object_pairs_hook=_members, parse_int=_integer, parse_float=_double, parse_constant=_no_constant
        )
        return write(value)
    except (json.JSONDecodeError, UnicodeEncodeError, RecursionError):
        raise PayloadInvalid("syntax") from None


def canonical_of(value: Any) -> bytes:
    """The canonical form of a value of Python's: what `json.dumps` takes."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise PayloadInvalid("syntax") from None
    return canonicalize(text)


class _Object(list[tuple[str, Any]]):
    """The members of an object, in the order in which they came."""


def _members(pairs: list[tuple[str, Any]]) -> _Object:
    if len({name for name, _ in pairs}) != len(pairs):
        raise PayloadInvalid("duplicate")
    return _Object(pairs)


def _integer(text: str) -> int | float:
    # Python refuses very long digits by an error of its own; they are past the bound anyway.
    if len(text) > 17 or abs(int(text)) > MAX_EXACT:
        raise PayloadInvalid("number")
    return int(text)


def _double(text: str) -> float:
    value = float(text)
    # What a double can't hold, another reader may: 0.1 and 0.1000000000000000055 are two payloads to it.
    if math.isinf(value) or abs(value) > MAX_EXACT or _decimal(text) != _decimal(number_text(value)):
        raise PayloadInvalid("number")
    return value


def _decimal(text: str) -> tuple[bool, str, int]:
    """A number by its sign, its digits without zeros at either end, and the power of ten of the last of them."""
    mantissa, _, power = text.lower().lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    ones = digits.rstrip("0")
    if not ones:
        return (False, "", 0)
    # A power that is longer than this is past every double, and of no use as a number.
    scale = int(power or 0) if len(power) < 20 else 10**20
    return (text.startswith("-"), ones, scale - len(fraction) + len(digits) - len(ones))


def _no_constant(_: str) -> NoReturn:
    raise PayloadInvalid("syntax")


def _check_depth(text: str) -> None:
    """Said before the rest is read: brackets are counted where the text is well formed so far."""
    depth = 0
    for found in _TOKENS.finditer(text):
        bracket = found.group()
        if bracket in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise PayloadInvalid("depth")
        elif bracket in "]}":
            depth -= 1


def write(value: Any) -> bytes:
    """Writes what was read."""
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode("utf-8")


def _write(value: Any, out: list[str]) -> None:
    if isinstance(value, _Object):
        out.append("{")
        for number, (name, member) in enumerate(sorted(value, key=lambda pair: pair[0].encode("utf-16-be"))):
            out.append("," if number else "")
            out.append(_string(name))
            out.append(":")
            _write(member, out)
        out.append("}")
    elif isinstance(value, list):
        out.append("[")
        for number, item in enumerate(value):
            out.append("," if number else "")
            _write(item, out)
        out.append("]")
    elif isinstance(value, str):
        out.append(_string(value))
    elif value is None or isinstance(value, bool):
        out.append({None: "null", True: "true", False: "false"}[value])
    else:
        out.append(number_text(value))


def _string(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda m: _ESCAPES.get(m.group()) or f"\\u{ord(m.group()):04x}", text) + '"'


def number_text(value: int | float) -> str:
    """A number as ECMAScript writes it: the shortest digits that give the same double."""
    value = float(value)
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # Where the decimal point stands, counted from the first digit that isn't 0.
    point = int(power or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"
