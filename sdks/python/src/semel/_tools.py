"""What the decorators of all agent frameworks have in common.

A call's key comes from the arguments that say what is done, the conversation and the tool's name. The other arguments
are its payload: where they differ, the model is asked what it means.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from ._claims import Terms, plain_value
from ._effect import Effect
from ._lease import merged
from ._tool_words import EXACTLY, NEW_CALL, Reason, Refusal, new_call_text, reason_of, refusal
from ._values import Codec, codec_for
from .api_types import ClaimView, LookupRequest
from .aworker import AsyncSemel
from .canonical import canonical_of
from .errors import AnswerNotKept, Conflict, SemelError, Unrecorded
from .worker import Semel

_NEW_CALL = "new_call"
_DIGEST = 16
_HOLD = Terms(crash="hold")


@dataclass(frozen=True)
class Kind:
    """What is particular to a framework."""

    is_context: Callable[[Any], bool]
    """Whether the framework, and not the model, fills an argument of this annotation."""
    conversation: Callable[[Any], object]
    """The conversation's id, from the framework's context."""
    advice: str
    """What to do where there is none."""
    context: Any = None
    """The annotation of the first argument, where the framework gives its context only there."""
    again: tuple[type[Exception], ...] = ()
    """Errors by which a tool asks to be called again, or pauses: nothing is kept of the call."""


class ToolDecorator(Protocol):
    """What `idempotent` gives: the function with one argument more, `new_call`."""

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """The function that runs once."""


@dataclass(frozen=True)
class Options:
    """As `idempotent` of each framework takes them."""

    identity: tuple[str, ...] | None
    ignore: tuple[str, ...] | None
    conversation: Callable[[Any], object] | None
    terms: Terms | None
    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None
    tell: Callable[[Refusal], Any] | None


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    key: str
    rest: dict[str, Any]
    """The arguments that are no part of the key."""
    digests: dict[str, str]
    """By which a later call finds out what differs, without the values."""

    @classmethod
    def of(cls, key: str, rest: dict[str, Any]) -> Self:
        """`PayloadInvalid` where an argument can't be compared."""
        return cls(key, rest, {name: field_digest(key, value) for name, value in rest.items()})

    def differing(self, view: ClaimView | None) -> tuple[list[str], bool]:
        """The arguments in which the earlier call differs, and whether these are known to be the ones."""
        kept = None if view is None else _envelope(view.get("answer", {}).get("body"))
        names = [name for name, own in self.digests.items() if kept is not None and kept["fields"].get(name) != own]
        return (names, True) if names else (list(self.rest), False)


def call_key(tool: str, conversation: str, identity: Mapping[str, Any], new_call: str) -> str:
    """The key of a call. The TypeScript package makes the same one."""
    return "call-" + hashlib.sha256(canonical_of([conversation, tool, dict(identity), new_call])).hexdigest()


def field_digest(key: str, value: Any) -> str:
    """What is kept of an argument. The TypeScript package makes the same one."""
    return hashlib.sha256(key.encode() + b"\0" + canonical_of(value)).hexdigest()[:_DIGEST]


def _envelope(body: Any) -> dict[str, Any] | None:
    if isinstance(body, dict) and body.keys() == {"fields", "result"} and isinstance(body["fields"], dict):
        return body
    return None


class Tool:
    """A function, and how its calls are told apart."""

    def __init__(self, kind: Kind, function: Callable[..., Any], scope: str | None, options: Options) -> None:
        self.kind, self.options = kind, options
        self.name = scope or function.__name__
        self._signature = inspect.signature(function)
        hints = _hints(function)
        parameters = self._signature.parameters.values()
        filled = [p.name for p in parameters if kind.is_context(hints.get(p.name, p.annotation))]
        names = [name for name in self._signature.parameters if name not in (*filled, "self", "cls", _NEW_CALL)]
        self._identity = _identity_of(names, options)
        self._rest = tuple(name for name in names if name not in self._identity)
        self._codec = codec_for(function, options.encode, options.decode)
        self.takes_context = bool(filled) and filled[0] == next(iter(self._signature.parameters))
        self.takes_new_call = _NEW_CALL in self._signature.parameters

    def call(self, context: Any, args: Any, kwargs: Any, new_call: str) -> Call:
        """What is asked for."""
        found = self._signature.bind(*args, **kwargs)
        found.apply_defaults()
        given = {name: _plain(found.arguments[name]) for name in (*self._identity, *self._rest)}
        conversation = (self.options.conversation or self.kind.conversation)(context)
        if conversation is None or conversation == "":
            # Two conversations would share their calls.
            raise SemelError(f"the call has no conversation: {self.kind.advice}")
        identity = given if new_call == EXACTLY else {name: given[name] for name in self._identity}
        key = call_key(self.name, str(conversation), identity, new_call)
        return Call.of(key, {name: given[name] for name in self._rest})

    def codec(self, call: Call) -> Codec:
        """The result is kept with what a later call is compared by."""

        def decode(plain: Any) -> Any:
            kept = _envelope(plain)
            # What isn't of this form is an operator's answer.
            return plain if kept is None else self._codec.decode(kept["result"])

        return Codec("object", lambda value: {"fields": call.digests, "result": self._codec.encode(value)}, decode)

    def terms(self, default: Terms) -> Terms:
        """A tool's call is held in doubt where nothing else is said: models repeat what fails."""
        own = merged(self.options.terms, merged(default, _HOLD))
        return merged(Terms(no_effect=(*(own.no_effect or ()), *self.kind.again)), own)

    def told(self, call: Call, error: SemelError, view: ClaimView | None) -> Any:
        """What the model reads, where that is for the model; else the error is raised."""
        if isinstance(error, Unrecorded) or (isinstance(error, AnswerNotKept) and error.value is not None):
            # It ran, here and now.
            return error.value
        reason = reason_of(error)
        if reason is None:
            raise error
        return self.refused(reason, *(call.differing(view) if reason == "reworded" else ([], True)))

    def refused(self, reason: Reason, fields: Sequence[str] = (), known: bool = True) -> Any:
        """What the model reads in place of a result."""
        words = refusal(reason, self.name, fields, known=known, new_call=_NEW_CALL)
        return str(words) if self.options.tell is None else self.options.tell(words)


def decorator(kind: Kind, once: Semel | AsyncSemel, scope: str | None, options: Options) -> ToolDecorator:
    """Makes a tool's function run once for each call of one meaning."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        tool = Tool(kind, function, scope, options)

        def taken(args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, Call | None]:
            context = args[0] if kind.context is not None and args else None
            own = args if kind.context is None or tool.takes_context else args[1:]
            given = kwargs.get(_NEW_CALL) if tool.takes_new_call else kwargs.pop(_NEW_CALL, None)
            new_call = new_call_text(given)
            return own, kwargs, None if new_call is None else tool.call(context, own, kwargs, new_call)

        made: Callable[..., Any]
        if isinstance(once, AsyncSemel):
            made = _asynchronous(tool, once, function, taken)
        else:
            made = _synchronous(tool, once, function, taken)
        return _presented(tool, function, made)

    return wrap


Taken = Callable[[Any, dict[str, Any]], tuple[Any, Any, Call | None]]


def _synchronous(tool: Tool, once: Semel, function: Callable[..., Any], taken: Taken) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{function.__name__} is a coroutine function: use AsyncSemel")
    terms = tool.terms(once.terms)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        own, named, call = taken(args, kwargs)
        if call is None:
            return tool.refused("malformed")
        effect = Effect(lambda _: function(*own, **named))
        try:
            return once._run(tool.name, call.key, effect, tool.codec(call), payload=call.rest, terms=terms).value
        except SemelError as error:
            if effect.caused(error):
                raise
            return tool.told(call, error, looked_up(call) if isinstance(error, Conflict) else None)

    def looked_up(call: Call) -> ClaimView | None:
        try:
            return once.api.lookup(_lookup(tool, once.tenant, call))
        except SemelError:
            return None

    return wrapped


def _asynchronous(tool: Tool, once: AsyncSemel, function: Callable[..., Any], taken: Taken) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function.__name__} is no coroutine function: use Semel")
    terms = tool.terms(once.terms)

    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        own, named, call = taken(args, kwargs)
        if call is None:
            return tool.refused("malformed")
        effect = Effect(lambda _: function(*own, **named))
        try:
            codec = tool.codec(call)
            return (await once._run(tool.name, call.key, effect.arun, codec, payload=call.rest, terms=terms)).value
        except SemelError as error:
            if effect.caused(error):
                raise
            return tool.told(call, error, await looked_up(call) if isinstance(error, Conflict) else None)

    async def looked_up(call: Call) -> ClaimView | None:
        try:
            return await once.api.lookup(_lookup(tool, once.tenant, call))
        except SemelError:
            return None

    return wrapped


def _lookup(tool: Tool, tenant: str | None, call: Call) -> LookupRequest:
    request: LookupRequest = {"scope": tool.name, "key": call.key}
    if tenant is not None:
        request["tenant"] = tenant
    return request


def _presented(tool: Tool, function: Callable[..., Any], made: Callable[..., Any]) -> Callable[..., Any]:
    """With the signature that the framework reads, which has the added arguments."""
    from pydantic import Field, WithJsonSchema  # noqa: PLC0415

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    annotations = dict(getattr(function, "__annotations__", {}))
    if not tool.takes_new_call:
        # Not every framework tells the model why an argument isn't valid, so the wrapper takes any, and tells it.
        texts = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]})
        annotated = typing.Annotated[Any, texts, Field(description=NEW_CALL)]
        added = inspect.Parameter(_NEW_CALL, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotated)
        last = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        parameters.insert(len(parameters) - last, added)
        annotations[_NEW_CALL] = annotated
    if tool.kind.context is not None and not tool.takes_context:
        name = "semel_context"
        parameters.insert(0, inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=tool.kind.context))
        annotations = {name: tool.kind.context, **annotations}
    made.__annotations__ = annotations
    made.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return made


def _identity_of(names: list[str], options: Options) -> tuple[str, ...]:
    """The arguments that say what is done: those named, all but those ignored, or all."""
    if options.identity is not None and options.ignore is not None:
        raise TypeError("give identity= or ignore=, not both")
    given = options.identity if options.identity is not None else options.ignore
    if isinstance(given, str):
        raise TypeError("names of arguments come as a tuple, such as ('to', 'amount')")
    unknown = [name for name in given or () if name not in names]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no argument that the model gives")
    found = options.identity if options.identity is not None else [n for n in names if n not in (options.ignore or ())]
    if names and not found:
        raise TypeError("every call would have the same key: name an argument that tells calls apart")
    return tuple(sorted(found))


def _plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(value, default=plain_value, allow_nan=False))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        # A name that only type checkers import.
        return {}
