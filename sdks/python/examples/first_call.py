"""A charge that is made once, whatever the network does."""

import os

from semel import Answer, Client, Conflict, GaveUp

client = Client(os.environ["PAYMENTS_URL"])


def charge(order: str, cents: int) -> Answer | None:
    try:
        return client.post("/charges", json={"order": order, "cents": cents}, key=f"charge-{order}")
    except Conflict:
        # The key was used for another amount: a bug on our side, and nothing was charged for this one.
        raise
    except GaveUp as error:
        # Ask again later, with the same key. `error.unknown` says whether it may have been charged.
        print(f"no answer after {error.attempts} attempts; may be done: {error.unknown}")
        return None


if __name__ == "__main__":
    answer = charge("ord-1", 500)
    if answer is not None:
        print(answer.status, answer.json()["receipt"], "replayed" if answer.replayed else "new")
