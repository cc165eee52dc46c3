"""Dramatiq delivers at least once; with this, a message delivered twice acts once: `dramatiq dramatiq_app`."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import Retry

import semel
from semel import Terms
from semel.dramatiq import idempotent

dramatiq.set_broker(RedisBroker(url=os.environ["BROKER_URL"]))  # type: ignore[no-untyped-call]
once = semel.open(os.environ["STORE_URL"], terms=Terms(crash="hold"))


class BankBusy(Exception):
    pass


def ask_the_bank(order: str, cents: int) -> None:
    with open(os.environ["CHARGES"], "a") as charges:  # noqa: PTH123
        charges.write(f"{order} {cents}\n")


@dramatiq.actor
@idempotent(once, "charge", key="charge-{order}")
def charge(order: str, cents: int) -> None:
    try:
        ask_the_bank(order, cents)
    except BankBusy as error:
        raise Retry(delay=5_000) from error  # nothing was charged: the key is free again, and the message comes again
