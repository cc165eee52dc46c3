"""Pydantic AI: a tool that a model calls again acts once.

@agent.tool
@idempotent(once, identity=("to", "subject"), conversation=lambda ctx: ctx.deps.ticket)
def send_email(ctx: RunContext[Deps], to: str, subject: str, note: str = "") -> str: ...
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, RunContext

from ._claims import Terms
from ._tool_words import Refusal
from ._tools import Kind, Options, ToolDecorator, decorator
from .aworker import AsyncSemel
from .worker import Semel


def _is_context(annotation: Any) -> bool:
    return (typing.get_origin(annotation) or annotation) is RunContext


_ADVICE = "the function given as conversation= knew none"
_KIND = Kind(
    _is_context,
    lambda _: None,
    _ADVICE,
    context=RunContext[Any],
    again=(ModelRetry, CallDeferred, ApprovalRequired),
)


def idempotent(
    once: Semel | AsyncSemel,
    scope: str | None = None,
    *,
    conversation: Callable[[RunContext[Any]], object],
    identity: tuple[str, ...] | None = None,
    ignore: tuple[str, ...] | None = None,
    terms: Terms | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    tell: Callable[[Refusal], Any] | None = None,
) -> ToolDecorator:
    """Makes a tool act once for each call of one meaning in a conversation; a repeated call gets the first result.

    `identity` names the arguments that tell calls apart, or `ignore` those that don't. A call that differs only in the
    others is refused in words for the model; so is one whose outcome is in doubt. `tell` makes what the tool returns
    of these words. Put it below `@agent.tool` (not `tool_plain`), or give the function to `Agent(tools=[…])`.
    `ModelRetry`, `CallDeferred` and `ApprovalRequired` free the key.

    `conversation` returns the conversation's id, such as one in the run's dependencies. Pydantic AI makes a new
    `conversation_id` for each run that is given none: with that one, only repeats within one run are recognised.
    """
    return decorator(_KIND, once, scope, Options(identity, ignore, conversation, terms, encode, decode, tell))


__all__ = ["Refusal", "idempotent"]
