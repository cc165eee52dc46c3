"""A function that runs once for each order, on a store of your own: no sidecar, no other process."""

import os
import sys

import semel

once = semel.open(os.environ["STORE_URL"])  # redis://…, postgres://…, mysql://…, sqlite:///…, s3://…, memory://


@once.idempotent("charge", key="charge-{order}")
def charge(order: str, cents: int) -> dict[str, int]:
    print("charging", order)
    return {"charged": cents}


if __name__ == "__main__":
    for order in sys.argv[1:]:
        print(charge(order, 500))
