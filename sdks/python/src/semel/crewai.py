"""CrewAI: a tool that a model calls again acts once.

@tool("send_email")
@idempotent(once, identity=("to", "subject"), conversation=ticket_id)
def send_email(to: str, subject: str, note: str = "") -> str: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._claims import Terms
from ._tool_words import Refusal
from ._tools import Kind, Options, ToolDecorator, decorator
from .aworker import AsyncSemel
from .worker import Semel

_ADVICE = "the function given as conversation= knew none"
_KIND = Kind(lambda _: False, lambda _: None, _ADVICE)


def idempotent(
    once: Semel | AsyncSemel,
    scope: str | None = None,
    *,
    conversation: Callable[[], object],
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
    of these words. CrewAI tells a tool nothing of the conversation: `conversation` does, such as the `get` of a
    context variable. Put it below `@tool`, or on the `_run` of a `BaseTool`.
    """

    def of_nothing(_: object) -> object:
        return conversation()

    return decorator(_KIND, once, scope, Options(identity, ignore, of_nothing, terms, encode, decode, tell))


__all__ = ["Refusal", "idempotent"]
