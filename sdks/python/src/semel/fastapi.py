"""FastAPI: the lease of a request as a parameter of its endpoint. The middleware is `semel.asgi`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header
from fastapi import Request as _Request

from .asgi import LEASE
from .aworker import AsyncLease

_SAYS = "Names the operation: a request that is sent again with the same key gets the first one's answer."


def lease_of(
    request: _Request,
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key", description=_SAYS, max_length=1024)] = None,
) -> AsyncLease | None:
    """The lease under which the request runs; `None` where it has no key, or where the scope isn't enforced."""
    found = request.scope.get(LEASE)
    return found if isinstance(found, AsyncLease) else None


IdempotentLease = Annotated[AsyncLease | None, Depends(lease_of)]
"""`async def charge(order: Order, lease: IdempotentLease)`. It also documents the header in the OpenAPI document."""
