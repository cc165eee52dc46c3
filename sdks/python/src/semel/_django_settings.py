"""What `settings.SEMEL` says, read once, and again when tests override it."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from . import _http
from ._door import Door
from ._open import both
from .aworker import AsyncSemel
from .worker import Semel

_STORE_SETTINGS = ("ENVIRONMENT", "SECRET", "SECRET_ID", "ENCRYPTION_KEYS")
_KNOWN = frozenset(
    {"URL", "TOKEN", "TENANT", "TERMS", "SCOPE", "METHODS", "REQUIRE_KEY", "KEEP_HEADERS", "AUTHORITY"}
    | {"CREDENTIAL_HEADERS", "COOKIES", "ROUTES", "PRINCIPAL", "CLIENT", "ASYNC_CLIENT", *_STORE_SETTINGS}
)


@dataclass
class Configured:
    """The settings, checked."""

    semel: Callable[[], Semel]
    _make_async: Callable[[], AsyncSemel]
    door: Door
    scope: str
    principal: Callable[[Any], str | None] | None
    _asynchronous: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncSemel] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    def async_semel(self) -> AsyncSemel:
        """One for each event loop: connections belong to one."""
        loop = asyncio.get_running_loop()
        found = self._asynchronous.get(loop)
        if found is None:
            found = self._asynchronous[loop] = self._make_async()
        return found


def _named(value: Any) -> Any:
    return import_string(value) if isinstance(value, str) else value


@functools.lru_cache(maxsize=1)
def configured() -> Configured:
    """What the middleware goes by."""
    given: dict[str, Any] = settings.SEMEL
    unknown = sorted(set(given) - _KNOWN)
    if unknown:
        raise ImproperlyConfigured(f"SEMEL has no setting {unknown[0]}; it knows {', '.join(sorted(_KNOWN))}")
    terms = given.get("TERMS")
    if "CLIENT" in given or "ASYNC_CLIENT" in given:
        semel, make_async = _given(given.get("CLIENT")), _given(given.get("ASYNC_CLIENT"))
        shared = terms or next(_named(given[name]).terms for name in ("CLIENT", "ASYNC_CLIENT") if name in given)
    else:
        store: Any = {name.lower(): given[name] for name in _STORE_SETTINGS if name in given}
        semel, make_async, shared = both(
            given["URL"], token=given.get("TOKEN"), tenant=given.get("TENANT"), terms=terms, **store
        )
    door = Door.of(
        shared,
        routes=given.get("ROUTES"),
        methods=given.get("METHODS", _http.METHODS),
        require_key=given.get("REQUIRE_KEY", False),
        authority=given.get("AUTHORITY", True),
        keep_headers=given.get("KEEP_HEADERS", ()),
        credential_headers=given.get("CREDENTIAL_HEADERS", ()),
        cookies=given.get("COOKIES", ()),
    )
    principal = _named(given.get("PRINCIPAL"))
    return Configured(functools.lru_cache(maxsize=1)(semel), make_async, door, given.get("SCOPE", "http"), principal)


def _given(value: Any) -> Callable[[], Any]:
    def get() -> Any:
        if value is None:
            raise ImproperlyConfigured("SEMEL has only one of CLIENT and ASYNC_CLIENT, and this needs the other")
        return _named(value)

    return get


def _changed(*, setting: str, **_: Any) -> None:
    if setting == "SEMEL":
        configured.cache_clear()


setting_changed.connect(_changed)
