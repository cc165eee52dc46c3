"""A service as most are: it charges every time that it is asked to. It knows nothing of keys."""

import asyncio

from fastapi import FastAPI, Request
from pydantic import BaseModel

app = FastAPI()
charges: list[dict] = []


class Order(BaseModel):
    amount: int


@app.post("/charges", status_code=201)
async def charge(order: Order, request: Request) -> dict:
    await asyncio.sleep(0.05)  # the bank takes its time
    charges.append(
        {
            "charge": len(charges) + 1,
            "amount": order.amount,
            "client": request.headers.get("x-forwarded-for"),
            "host": request.headers.get("host"),
        }
    )
    return charges[-1]


@app.get("/charges")
async def count() -> dict:
    return {"charges": len(charges)}
