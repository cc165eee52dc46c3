"""FastAPI and PostgreSQL, no sidecar: `uvicorn fastapi_alone:app --workers 4`. A key's POST runs once."""

import os
from typing import Any

from fastapi import FastAPI

import semel
from semel.asgi import IdempotencyMiddleware

app = FastAPI()
once = semel.open_async(os.environ["DATABASE_URL"])  # postgres://user@host/database
app.add_middleware(IdempotencyMiddleware, semel=once, scope="charges")


@app.post("/charges", status_code=201)
async def charge(order: dict[str, Any]) -> dict[str, Any]:
    with open(os.environ["CHARGES"], "a") as charges:  # noqa: ASYNC230, PTH123
        charges.write(f"{order['order']}\n")
    return {"charged": order["cents"]}
