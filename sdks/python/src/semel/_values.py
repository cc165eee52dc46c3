"""Results of functions, by the annotation of what the function returns.

A type without one obvious form in JSON is refused when the function is decorated, before anything runs.
"""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from ._codecs import ANY, JSON, Codec, codec_of, identity_function, name_of
from .errors import AnswerUnreadable

_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)


def returned_by(function: Callable[..., Any], without: tuple[type, ...] = ()) -> Codec:
    """The codec of a function's results. Without an annotation that can be read, results are JSON. Members of a union
    that are among `without` are never kept.

    `TypeError` where results couldn't be kept.
    """
    inner = inspect.unwrap(function)
    annotation = _annotations(inner).get("return", inspect.Parameter.empty)
    bearer = types.SimpleNamespace(__annotations__={"return": annotation})
    names = getattr(inner, "__globals__", {})
    try:
        read = typing.get_type_hints(bearer, names, _closure(inner), include_extras=True)["return"]
    except NameError:
        # A name of the block in which the function was defined, or one that only type checkers import.
        return ANY
    if typing.get_origin(read) in _AWAITED:
        read = typing.get_args(read)[-1]
    if typing.get_origin(read) in (typing.Union, types.UnionType):
        read = typing.Union[tuple(member for member in typing.get_args(read) if member not in without)]  # noqa: UP007
    codec, name = codec_of(read, {}), name_of(read)

    def decode(value: Any) -> Any:
        try:
            return codec.decode(value)
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise AnswerUnreadable(name) from error

    return codec if codec.decode is identity_function else Codec(codec.kind, codec.encode, decode)


def _annotations(function: Any) -> dict[str, Any]:
    """As they stand: the others of a function may name what only type checkers import."""
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415

        if callable(function) and hasattr(function, "__annotations__"):
            return annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
        return {}
    found: dict[str, Any] = getattr(function, "__annotations__", {})
    return found


def codec_for(
    function: Callable[..., Any],
    encode: Callable[[Any], Any] | None,
    decode: Callable[[Any], Any] | None,
    without: tuple[type, ...] = (),
) -> Codec:
    """What the caller says, or what the function's annotation says."""
    if encode is None and decode is None:
        return returned_by(function, without)
    return Codec("any", encode or identity_function, decode or identity_function)


def _closure(function: Any) -> dict[str, Any]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    found = {}
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


__all__ = ["JSON", "Codec", "codec_for", "identity_function", "returned_by"]
