"""FastAPI: `uvicorn fastapi_app:app`. A POST with an Idempotency-Key runs once."""

import os
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from semel import AsyncSemel, Terms
from semel.asgi import IdempotencyMiddleware, Scope
from semel.fastapi import IdempotentLease

app = FastAPI()
charges: list[dict[str, Any]] = []


def user(scope: Scope) -> str | None:
    return next((value.decode() for name, value in scope["headers"] if name == b"x-user"), None)


app.add_middleware(
    IdempotencyMiddleware,
    semel=AsyncSemel(os.environ["SIDECAR_URL"], terms=Terms(derive=("bank",))),
    scope="charges",
    principal=user,  # keys of two users never meet
)


class Order(BaseModel):
    order: str
    cents: int


@app.post("/charges", status_code=201)
async def charge(order: Order, lease: IdempotentLease) -> dict[str, str]:
    if order.cents <= 0:
        raise HTTPException(422, "nothing to charge")
    key = await lease.derive_key("bank") if lease else None
    charges.append({**order.model_dump(), "key": key})
    return {"charge": f"ch_{len(charges)}"}


@app.get("/charges")
async def listed() -> list[dict[str, Any]]:
    return charges
