"""What the headers of a webhook say, and why one is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from .errors import SemelError

MAX_HEADER_BYTES = 4096
"""The longest signature header."""

Reason = Literal["missing", "malformed", "signature", "expired", "too_large", "no_id"]
HeaderLines = Mapping[str, str] | Iterable[tuple[str, str]]

_DIGITS = re.compile(r"[0-9]{1,12}")


class WebhookRefused(SemelError):
    """A webhook that isn't believed, by its `reason`; `status` is what to answer.

    A header is `missing` or `malformed`, the `signature` is wrong, its time is too far off (`expired`), the body is
    `too_large`, or there is `no_id` of the event.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"the webhook is refused: {reason}")
        self.reason: Reason = reason
        self.status = {"too_large": 413, "signature": 401, "expired": 401}.get(reason, 400)


class Lines:
    """Headers by name."""

    def __init__(self, headers: HeaderLines) -> None:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        self._lines: dict[str, list[str]] = {}
        for name, value in pairs:
            self._lines.setdefault(name.lower(), []).append(value)

    def one(self, name: str) -> str:
        """The value of a header that is there once."""
        found = self._lines.get(name.lower(), [])
        if not found:
            raise WebhookRefused("missing")
        if len(found) > 1 or len(found[0]) > MAX_HEADER_BYTES:
            raise WebhookRefused("malformed")
        return found[0]

    def seconds(self, name: str) -> str:
        """A time."""
        return seconds_in(self.one(name))

    def maybe(self, name: str) -> str | None:
        """The value of a header that may be missing."""
        return self.one(name) if name.lower() in self._lines else None

    def all(self) -> dict[str, str]:
        """Each with its values, joined."""
        return {name: ", ".join(values) for name, values in self._lines.items()}


def seconds_in(text: str) -> str:
    """A time, which is what was signed."""
    if _DIGITS.fullmatch(text) is None:
        raise WebhookRefused("malformed")
    return text


def after(prefix: str, text: str) -> str:
    """What comes after a prefix that must be there."""
    if not text.startswith(prefix):
        raise WebhookRefused("malformed")
    return text.removeprefix(prefix)


def member(body: bytes, name: str) -> str | None:
    """A text in a JSON object."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None
