"""Django under ASGI, with an asynchronous view: the store and the file of charges come from the environment."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for tests alone",
    MIDDLEWARE=["semel.django.IdempotencyMiddleware"],
    SEMEL={"URL": os.environ["STORE_URL"]},
)
django.setup()
CHARGES = Path(os.environ["CHARGES"])


def write(order: str) -> None:
    with CHARGES.open("a") as charges:
        charges.write(f"{order}\n")


async def charge(request: HttpRequest) -> JsonResponse:
    if request.method == "GET":
        return JsonResponse({})
    order = json.loads(request.body)["order"]
    await asyncio.sleep(1)
    # As the ORM works: in the thread of the request.
    await sync_to_async(write)(order)
    return JsonResponse({"charged": order}, status=201)


urlpatterns = [path("charges", charge)]
app = get_asgi_application()
