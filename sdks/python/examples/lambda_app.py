"""AWS Lambda: a handler of HTTP requests, and one of events from a queue or a schedule."""

import json
import os
from typing import Any

import semel
from semel import Terms, current_lease
from semel.aws_lambda import idempotent, idempotent_http

once = semel.open(os.environ["STORE_URL"], terms=Terms(crash="hold"))  # opened once for each execution environment
charges: list[str] = []


@idempotent_http(once, scope="charges", require_key=True)
def http_handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    order, lease = json.loads(event["body"]), current_lease()
    charges.append(f"{order['order']} {lease.derive_key('bank') if lease else ''}")
    return {"statusCode": 201, "body": json.dumps({"charge": f"ch_{len(charges)}"})}


@idempotent(once, "charge", key="charge-{detail[order]}", payload=lambda event: event["detail"])
def event_handler(event: dict[str, Any], _context: object) -> str:
    charges.append(event["detail"]["order"])
    return f"ch_{len(charges)}"
