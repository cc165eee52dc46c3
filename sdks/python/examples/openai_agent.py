"""OpenAI Agents SDK: a model that forgets, words its call anew, and sends one mail all the same. It is a script."""

import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, ToolCallOutputItem, Usage, function_tool
from agents.items import TResponseStreamEvent
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import semel
from semel.openai_agents import idempotent

once = semel.open(os.environ["STORE_URL"])  # redis://…, postgres://…, or http://…/_semel
sent: list[str] = []
CALLS = [
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "Please find it attached."},
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "You will find it attached."},
]


class Script(Model):
    def __init__(self) -> None:
        self.turn = 0

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        self.turn += 1
        if self.turn > len(CALLS):
            text = ResponseOutputText(text="Done.", type="output_text", annotations=[])
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse([said], Usage(), None)
        arguments, call_id = json.dumps(CALLS[self.turn - 1]), f"call-{self.turn}"
        call = ResponseFunctionToolCall(arguments=arguments, call_id=call_id, name="send_email", type="function_call")
        return ModelResponse([call], Usage(), None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError


def send_email(to: str, subject: str, note: str = "") -> str:
    """Sends a mail."""
    sent.append(to)
    return f"sent to {to}"


def conversation(send: Callable[..., Any]) -> list[str]:
    agent = Agent("clerk", model=Script(), tools=[function_tool(send)])
    run = RunConfig(group_id="ticket-12", tracing_disabled=True)
    ended = Runner.run_sync(agent, "Send Ada her invoice.", run_config=run)
    return [str(item.output) for item in ended.new_items if isinstance(item, ToolCallOutputItem)]


def mails(send: Callable[..., Any]) -> int:
    before = len(sent)
    conversation(send)
    return len(sent) - before


if __name__ == "__main__":
    safe = idempotent(once, identity=("to", "subject"))(send_email)  # below @function_tool, where it is a decorator
    print(f"without: {mails(send_email)} emails, with: {mails(safe)}")
    print(conversation(safe)[-1])
