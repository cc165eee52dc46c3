"""LangGraph: a model that forgets, words its call anew, and sends one mail all the same. The model is a script."""

import os
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import semel
from semel.langgraph import idempotent

once = semel.open(os.environ["STORE_URL"])  # redis://…, postgres://…, or http://…/_semel
sent: list[str] = []
CALLS = [
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "Please find it attached."},
    {"to": "ada@example.com", "subject": "Invoice 7", "note": "You will find it attached."},
]


def send_email(to: str, subject: str, note: str = "") -> str:
    """Sends a mail."""
    sent.append(to)
    return f"sent to {to}"


def conversation(send: Callable[..., Any]) -> list[AnyMessage]:
    turns = [AIMessage("", tool_calls=[{"name": "send_email", "args": args, "id": args["note"]}]) for args in CALLS]
    model = iter([*turns, AIMessage("Done.")])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [next(model)]})
    graph.add_node("tools", ToolNode([tool(send)]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    ended = graph.compile().invoke({"messages": []}, {"configurable": {"thread_id": "ticket-12"}})
    messages: list[AnyMessage] = ended["messages"]
    return messages


def mails(send: Callable[..., Any]) -> int:
    before = len(sent)
    conversation(send)
    return len(sent) - before


if __name__ == "__main__":
    safe = idempotent(once, identity=("to", "subject"))(send_email)  # below @tool, where it is a decorator
    print(f"without: {mails(send_email)} emails, with: {mails(safe)}")
    print(conversation(safe)[-2].content)
