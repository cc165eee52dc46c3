"""What the decorators of all task queues have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from ._arguments import bound, key_of, reader
from ._claims import Terms
from ._lease import merged
from ._values import codec_for
from .errors import NoEffect
from .worker import Decorator, Semel

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """What is particular to a queue."""

    task_id: Callable[[], str | None]
    """The id of the task that runs: the same on each delivery and each retry of it."""
    again: tuple[type[Exception], ...] = ()
    """Errors by which a task asks to be run again, or to be left alone: nothing is kept of it."""
    again_results: tuple[type, ...] = ()
    """Types of results that say the same."""


class _Again(NoEffect):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


def decorator(
    kind: Kind,
    once: Semel,
    scope: str,
    key: str | Callable[..., str] | None,
    payload: Callable[..., Any] | None,
    terms: Terms | None,
    encode: Callable[[Any], Any] | None,
    decode: Callable[[Any], Any] | None,
) -> Decorator:
    """Makes a task run once for each key, or once for each task."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        codec = codec_for(function, encode, decode, kind.again_results)
        key_for = None if key is None else key_of(function, key)
        payload_of = None if payload is None else reader(function, payload)
        own = merged(terms, once.terms)
        both = merged(Terms(no_effect=(*(own.no_effect or ()), *kind.again)), own)

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            found = kind.task_id() if key_for is None else key_for(*args, **kwargs)
            if found is None:
                # Called as a function, not by a worker: there is no delivery to tell from another.
                return function(*args, **kwargs)
            asked = bound(function, args, kwargs) if payload_of is None else payload_of(*args, **kwargs)

            def effect(_: object) -> T:
                result = function(*args, **kwargs)
                if isinstance(result, kind.again_results):
                    raise _Again(result)
                return result

            try:
                return once._run(scope, found, effect, codec, payload=asked, terms=both).value
            except _Again as again:
                result: T = again.result
                return result

        return wrapped

    return wrap
