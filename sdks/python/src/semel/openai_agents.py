"""OpenAI Agents SDK: a tool that a model calls again acts once.

@function_tool
@idempotent(once, identity=("to", "subject"))
def send_email(to: str, subject: str, note: str = "") -> str: ...
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from agents import RunContextWrapper
from agents.tool_context import ToolContext

from ._claims import Terms
from ._tool_words import Refusal
from ._tools import Kind, Options, ToolDecorator, decorator
from .aworker import AsyncSemel
from .worker import Semel


def _is_context(annotation: Any) -> bool:
    kind = typing.get_origin(annotation) or annotation
    return kind is RunContextWrapper or kind is ToolContext


def _group(context: Any) -> object:
    config = getattr(context, "run_config", None)
    return None if config is None else config.group_id


_ADVICE = "run the agent with RunConfig(group_id=…), or give conversation="
_KIND = Kind(_is_context, _group, _ADVICE, context=ToolContext[Any])


def idempotent(
    once: Semel | AsyncSemel,
    scope: str | None = None,
    *,
    identity: tuple[str, ...] | None = None,
    ignore: tuple[str, ...] | None = None,
    conversation: Callable[[ToolContext[Any]], object] | None = None,
    terms: Terms | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    tell: Callable[[Refusal], Any] | None = None,
) -> ToolDecorator:
    """Makes a tool act once for each call of one meaning in a conversation; a repeated call gets the first result.

    `identity` names the arguments that tell calls apart, or `ignore` those that don't. A call that differs only in the
    others is refused in words for the model; so is one whose outcome is in doubt. `tell` makes what the tool returns
    of these words. The conversation is the `group_id` of the run. Put it below `@function_tool`.
    """
    return decorator(_KIND, once, scope, Options(identity, ignore, conversation, terms, encode, decode, tell))


__all__ = ["Refusal", "idempotent"]
