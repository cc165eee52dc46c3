"""Flask: `flask --app flask_app run`. A POST with an Idempotency-Key runs once."""

import os
from typing import Any

from flask import Flask, request

import semel
from semel import Terms, current_lease
from semel.wsgi import IdempotencyMiddleware

app = Flask(__name__)
once = semel.open(os.environ["STORE_URL"])  # redis://…, postgres://…, or http://…/_semel
app.wsgi_app = IdempotencyMiddleware(  # type: ignore[method-assign]
    app.wsgi_app,
    semel=once,
    scope="charges",
    principal=lambda environ: environ.get("HTTP_X_USER"),  # keys of two users never meet
    routes={"/refunds": Terms(crash="hold")},
)
charges: list[dict[str, Any]] = []


@app.post("/charges")
def charge() -> tuple[dict[str, str], int]:
    lease = current_lease()  # None for a request without a key
    charges.append({**request.get_json(), "key": lease.derive_key("bank") if lease else None})
    return {"charge": f"ch_{len(charges)}"}, 201


@app.get("/charges")
def listed() -> list[dict[str, Any]]:
    return charges


if __name__ == "__main__":
    app.run(port=int(os.environ["PORT"]))
