"""A worker's function that runs once for each order, over the sidecar's protocol API."""

import os
from typing import Any

from semel import Final, Semel, Terms, Unknown, current_lease

once = Semel(os.environ["SIDECAR_URL"])  # http://127.0.0.1:8080/_semel
charges: list[dict[str, Any]] = []


class CardDeclined(Exception):
    pass


def ask_the_bank(cents: int, key: str) -> str:
    if cents > 10_000:
        raise CardDeclined
    charges.append({"cents": cents, "key": key})
    return f"ch_{len(charges)}"


# Money can't be taken back: should this process vanish half-way, nobody repeats it until somebody has looked.
@once.idempotent("charge", key="{order[id]}", terms=Terms(crash="hold", derive=("bank",)))
def charge(order: dict[str, Any]) -> dict[str, str]:
    lease = current_lease()  # None where the server only observes the scope
    key = lease.derive_key("bank") if lease else order["id"]
    try:
        return {"charge": ask_the_bank(order["cents"], key)}
    except CardDeclined as error:
        raise Final({"error": "declined"}) from error  # kept: asking again is declined again
    except TimeoutError as error:
        raise Unknown from error  # sent, and no reply came: in doubt


if __name__ == "__main__":
    for _ in range(3):
        print(charge({"id": "ord-1", "cents": 500}))
    print(len(charges), "charge(s)")
