"""A caller that may crash at any moment: the key is on disk before the first byte is sent."""

import os
import sys

from semel import Client, Outbox

client = Client(os.environ["PAYMENTS_URL"], outbox=Outbox(os.environ["OUTBOX"]))
receipts: dict[str, str] = {}


def charge(order: str, cents: int) -> None:
    with client.call(f"charge {order}") as call:
        answer = call.post("/charges", json={"order": order, "cents": cents})
        receipts[order] = answer.json()["receipt"]  # keep it inside the block: leaving it forgets the call


def finish_what_was_left() -> None:
    for call in client.pending():
        if not call.sent:
            call.forget()
            continue
        with call:
            answer = call.send()
            receipts[call.name.removeprefix("charge ")] = answer.json()["receipt"]


if __name__ == "__main__":
    finish_what_was_left()
    for order in sys.argv[1:]:
        charge(order, 500)
    print(receipts)
