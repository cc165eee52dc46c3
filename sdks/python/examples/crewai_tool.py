"""CrewAI: an agent that calls its tool again, worded anew, sends one mail all the same. The calls are a script."""

import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from crewai.tools import tool

import semel
from semel.crewai import idempotent

once = semel.open(os.environ["STORE_URL"])  # redis://…, postgres://…, or http://…/_semel
ticket: ContextVar[str] = ContextVar("ticket")  # set before crew.kickoff()
sent: list[str] = []
CALLS = [
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "Please find it attached."},
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "You will find it attached."},
]


def send_email(to: str, subject: str, note: str = "") -> str:
    """Sends a mail."""
    sent.append(to)
    return f"sent to {to}"


def conversation(send: Callable[..., Any]) -> list[str]:
    ticket.set("ticket-12")
    tool_of_crew = tool("send_email")(send)
    return [str(tool_of_crew.run(**call)) for call in CALLS]


def mails(send: Callable[..., Any]) -> int:
    before = len(sent)
    conversation(send)
    return len(sent) - before


if __name__ == "__main__":
    safe = idempotent(once, identity=("to", "subject"), conversation=ticket.get)(send_email)  # below @tool
    print(f"without: {mails(send_email)} emails, with: {mails(safe)}")
    print(conversation(safe)[-1])
