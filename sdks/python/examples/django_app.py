"""Django in one file: `python django_app.py 8000`. A POST with an Idempotency-Key runs once."""

import json
import os
import sys
from typing import Any
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for this example alone",  # noqa: S106
    MIDDLEWARE=["semel.django.IdempotencyMiddleware"],  # after the authentication middleware, where there is one
    SEMEL={"URL": os.environ["SIDECAR_URL"], "SCOPE": "charges", "REQUIRE_KEY": True},
)
django.setup()
charges: list[Any] = []


def charge(request: HttpRequest) -> JsonResponse:
    if request.method == "GET":
        return JsonResponse({"charges": charges})
    order = json.loads(request.body)
    charges.append(order)
    if order.get("fail"):
        raise RuntimeError("after the charge")
    return JsonResponse({"charge": f"ch_{len(charges)}"}, status=201)


urlpatterns = [path("charges", charge)]

if __name__ == "__main__":
    with make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application()) as server:
        server.serve_forever()
