"""Terms by path, for the middlewares."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ._claims import Terms
from ._lease import merged

_PART = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}|\*\Z|[^{*]+")


class Routes:
    """The first pattern that fits counts: `/refunds`, `/orders/{id}/refunds`, `/admin/*`, `POST /refunds`."""

    def __init__(self, routes: Mapping[str, Terms], default: Terms) -> None:
        self._default = default
        self._routes = [(*_read(pattern), merged(terms, default)) for pattern, terms in routes.items()]

    def terms(self, method: str, path: str) -> Terms:
        """The terms of a request."""
        for wanted, pattern, terms in self._routes:
            if wanted in ("", method.upper()) and pattern.fullmatch(path):
                return terms
        return self._default


def _read(pattern: str) -> tuple[str, re.Pattern[str]]:
    method, _, path = pattern.rpartition(" ")
    parts = _PART.findall(path)
    if not path.startswith("/") or "".join(parts) != path:
        raise ValueError(f"{pattern!r} is no route: write /refunds, /orders/{{id}}/refunds, /admin/* or POST /refunds")
    read = {"{": "[^/]+", "*": ".*"}
    return method.strip().upper(), re.compile("".join(read.get(part[0]) or re.escape(part) for part in parts))
