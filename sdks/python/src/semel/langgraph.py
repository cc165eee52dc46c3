"""LangGraph and LangChain: a tool that a model calls again acts once.

@tool
@idempotent(once, identity=("to", "subject"))
def send_email(to: str, subject: str, note: str = "") -> str: ...
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import InjectedToolArg
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolRuntime

from ._claims import Terms
from ._tool_words import Refusal
from ._tools import Kind, Options, ToolDecorator, decorator
from .aworker import AsyncSemel
from .worker import Semel


def _is_context(annotation: Any) -> bool:
    members = typing.get_args(annotation)
    kinds = (annotation, typing.get_origin(annotation), *members)
    if any(kind is RunnableConfig or kind is ToolRuntime for kind in kinds):
        return True
    return any(
        isinstance(member, InjectedToolArg) or (isinstance(member, type) and issubclass(member, InjectedToolArg))
        for member in members[1:]
    )


def _thread(_: object) -> object:
    return ensure_config().get("configurable", {}).get("thread_id")


_ADVICE = 'invoke the graph with {"configurable": {"thread_id": …}}, or give conversation='
_KIND = Kind(_is_context, _thread, _ADVICE, again=(GraphBubbleUp,))


def idempotent(
    once: Semel | AsyncSemel,
    scope: str | None = None,
    *,
    identity: tuple[str, ...] | None = None,
    ignore: tuple[str, ...] | None = None,
    conversation: Callable[[RunnableConfig], object] | None = None,
    terms: Terms | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    tell: Callable[[Refusal], Any] | None = None,
) -> ToolDecorator:
    """Makes a tool act once for each call of one meaning in a conversation; a repeated call gets the first result.

    `identity` names the arguments that tell calls apart, or `ignore` those that don't. A call that differs only in the
    others is refused in words for the model; so is one whose outcome is in doubt. `tell` makes what the tool returns
    of these words. The conversation is the thread. Put it below `@tool`. `interrupt()` frees the key.
    """
    of_config = None if conversation is None else (lambda _: conversation(ensure_config()))
    return decorator(_KIND, once, scope, Options(identity, ignore, of_config, terms, encode, decode, tell))


__all__ = ["Refusal", "idempotent"]
