"""`open` and `open_async`: a sidecar or a store, by its URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict, Unpack

from ._claims import Terms
from ._engine import AsyncStoreApi, EmbeddedStore, StoreApi
from .aworker import AsyncSemel
from .retry import RetryBudget, RetryPolicy
from .worker import Semel

if TYPE_CHECKING:
    from ._native import StoreOptions


class StoreSettings(TypedDict, total=False):
    """What a store in this process is opened with: the same in all processes that share it."""

    environment: str
    """Equal keys of different environments are different keys. Empty by default."""
    secret: str | bytes
    """Keys identities and fingerprints: at least 16 bytes, as a sidecar has them in `store.secret_file`."""
    secret_id: int
    """The secret's number, 1 by default."""
    encryption_keys: str
    """The lines of a key file, as `semel encryption-key` writes them: answers and checkpoints are encrypted."""


def open(  # noqa: A001
    url: str,
    *,
    token: str | None = None,
    tenant: str | None = None,
    actor: str | None = None,
    terms: Terms | None = None,
    retry: RetryPolicy | None = None,
    budget: RetryBudget | None = None,
    **settings: Unpack[StoreSettings],
) -> Semel:
    """Functions that run once, on a store in this process: `postgres://…`, `redis://…`, `sqlite:///…`, `mysql://…`,
    `s3://…`, `memory://`. `http://…` is a sidecar.

    `OpenError` where the store can't be opened.
    """
    if _is_sidecar(url, settings):
        return Semel(url, token=token, tenant=tenant, actor=actor, terms=terms, retry=retry, budget=budget)
    store = _store(url, token, settings)
    store.connect()
    api = StoreApi(store, retry, budget)
    return Semel(url, tenant=tenant, actor=actor, terms=terms, api=api)


def open_async(
    url: str,
    *,
    token: str | None = None,
    tenant: str | None = None,
    actor: str | None = None,
    terms: Terms | None = None,
    retry: RetryPolicy | None = None,
    budget: RetryBudget | None = None,
    **settings: Unpack[StoreSettings],
) -> AsyncSemel:
    """As `open`, for asyncio. The store is opened by `async with`, else by the first call: no event loop runs yet."""
    if _is_sidecar(url, settings):
        return AsyncSemel(url, token=token, tenant=tenant, actor=actor, terms=terms, retry=retry, budget=budget)
    api = AsyncStoreApi(_store(url, token, settings), retry, budget)
    return AsyncSemel(url, tenant=tenant, actor=actor, terms=terms, api=api)


def both(
    url: str, *, token: str | None, tenant: str | None, terms: Terms | None, **settings: Unpack[StoreSettings]
) -> tuple[Callable[[], Semel], Callable[[], AsyncSemel], Terms]:
    """For frameworks that have both kinds of handlers: makers of clients, which share a store in this process."""
    shared = terms or Terms()
    if _is_sidecar(url, settings):
        return (
            lambda: Semel(url, token=token, tenant=tenant, terms=shared),
            lambda: AsyncSemel(url, token=token, tenant=tenant, terms=shared),
            shared,
        )
    store = _store(url, token, settings)
    store.connect()
    return (
        lambda: Semel(url, tenant=tenant, terms=shared, api=StoreApi(store, None, None)),
        lambda: AsyncSemel(url, tenant=tenant, terms=shared, api=AsyncStoreApi(store, None, None)),
        shared,
    )


def _is_sidecar(url: str, settings: StoreSettings) -> bool:
    if not url.startswith(("http://", "https://")):
        return False
    if settings:
        raise ValueError(f"a sidecar has its own settings; leave out {', '.join(sorted(settings))}")
    return True


def _store(url: str, token: str | None, settings: StoreSettings) -> EmbeddedStore:
    if token is not None:
        raise ValueError("a token is for a sidecar; leave it out")
    secret = settings.get("secret")
    options: StoreOptions = {
        "environment": settings.get("environment", ""),
        "secret": (secret.encode() if isinstance(secret, str) else secret).rstrip() if secret is not None else None,
        "secret_id": settings.get("secret_id", 1),
        "encryption_keys": settings.get("encryption_keys"),
    }
    return EmbeddedStore(url, options)
