"""FastAPI: `uvicorn webhook_app:app`. Stripe delivers an event again and again; the order is shipped once."""

import os

from fastapi import FastAPI
from starlette.routing import Route

import semel
from semel import webhooks

once = semel.open_async(os.environ["STORE_URL"])  # redis://…, postgres://…, or http://…/_semel
stripe = webhooks.stripe(os.environ["STRIPE_WEBHOOK_SECRET"].split())  # while it is replaced: the new and the old one
shipped: list[str] = []


async def handle(event: webhooks.Event) -> None:
    told = event.json()
    if told["type"] == "checkout.session.completed":
        shipped.append(told["data"]["object"]["id"])


app = FastAPI(routes=[Route("/stripe", stripe.asgi(once, handle))])
