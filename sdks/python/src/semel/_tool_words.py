"""What a model reads where a tool's call did nothing, and why. The TypeScript package says the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .errors import Conflict, GaveUp, InDoubt, SemelError, answer_is_gone
from .retry import problem_of

Reason = Literal["reworded", "in_doubt", "running", "not_kept", "malformed"]
"""Why a call did nothing."""

NEW_CALL = (
    "Leave this out. Only to make a call again on purpose, although an earlier call with the same meaning was made: "
    "a short text of your choice that you have not used before. Repeat the text when you repeat that call."
)
"""What a model is told of the argument that makes a call a new one."""

_WORDS: dict[Reason, str] = {
    "reworded": (
        "Nothing was done: this call of {tool} is like an earlier one in this conversation, and differs in {fields}. "
        "To get the result of the earlier call, repeat it with the same arguments. If you mean a new call, add "
        "{new_call} with a short text that you have not used before."
    ),
    "in_doubt": (
        "It is not known whether this call of {tool} took effect: an earlier attempt ended without a result. Nothing "
        "was done now. Do not call it again. Find out whether it took effect, or tell the user."
    ),
    "running": (
        "The same call of {tool} is still running, and nothing else was started. To get its result, make the call "
        "again later with the same arguments."
    ),
    "not_kept": (
        "This call of {tool} was made before, and its result is not available. Nothing was done now. Do not call it "
        "again."
    ),
    "malformed": (
        "Nothing was done: for a call of {tool}, {new_call} is a short text that you have not used before, or true. "
        "Leave it out unless you mean to make a call again on purpose."
    ),
}
_RUNNING = "idempotency_in_flight"
EXACTLY = "true"
"""In place of a text, as models say it to the gateway: a new call with exactly these arguments."""


def new_call_text(given: object) -> str | None:
    """What the argument for a new call says: an empty text where it says nothing, `None` where it can't be read."""
    if given is None or given is False or given == "false":
        return ""
    if given is True:
        return EXACTLY
    return given if isinstance(given, str) else None


class Refusal(str):
    """What the model reads in place of a result: nothing was done by this call."""

    __slots__ = ("fields", "reason")
    reason: Reason
    """Why."""
    fields: tuple[str, ...]
    """The names of the arguments that differ, where it was reworded; all candidates, where they aren't known."""


def refusal(reason: Reason, tool: str, fields: Sequence[str] = (), *, known: bool = True, new_call: str) -> Refusal:
    """The words for a model. `known` says whether exactly these fields differ, or at least one of them."""
    named = ", ".join(fields) if known or len(fields) == 1 else f"at least one of {', '.join(fields)}"
    words = Refusal(_WORDS[reason].format(tool=tool, fields=named, new_call=new_call))
    words.reason, words.fields = reason, tuple(fields)
    return words


def reason_of(error: SemelError) -> Reason | None:
    """What an error of this package means for a model; nothing where it is the program's to handle."""
    if isinstance(error, Conflict):
        return "reworded"
    if isinstance(error, InDoubt):
        return "in_doubt"
    if answer_is_gone(error):
        return "not_kept"
    if isinstance(error, GaveUp) and error.response is not None:
        return "running" if problem_of(error.response).get("code") == _RUNNING else None
    return None
