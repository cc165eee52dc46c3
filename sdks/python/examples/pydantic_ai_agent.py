"""Pydantic AI: a model that forgets, words its call anew, and sends one mail all the same. The model is a script."""

import os
from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import semel
from semel.pydantic_ai import idempotent

once = semel.open(os.environ["STORE_URL"])  # redis://…, postgres://…, or http://…/_semel
sent: list[str] = []
CALLS = [
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "Please find it attached."},
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "You will find it attached."},
]


def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    turn = len(messages) // 2
    return ModelResponse([ToolCallPart("send_email", CALLS[turn]) if turn < len(CALLS) else TextPart("Done.")])


def send_email(to: str, subject: str, note: str = "") -> str:
    """Sends a mail."""
    sent.append(to)
    return f"sent to {to}"


def conversation(send: Callable[..., Any]) -> list[str]:
    agent = Agent(FunctionModel(script), deps_type=str, tools=[send])
    ended = agent.run_sync("Send Ada her invoice.", deps="ticket-12")
    parts = [part for message in ended.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def mails(send: Callable[..., Any]) -> int:
    before = len(sent)
    conversation(send)
    return len(sent) - before


if __name__ == "__main__":
    safe = idempotent(once, identity=("to", "subject"), conversation=lambda context: context.deps)(send_email)
    print(f"without: {mails(send_email)} emails, with: {mails(safe)}")
    print(conversation(safe)[-1])
