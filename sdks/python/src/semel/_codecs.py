"""Types as JSON and back.

What JSON has is kept as it is. Dataclasses, pydantic models, dates, decimals and the like come back as what they were.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import enum
import inspect
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Literal
from uuid import UUID

import typing_extensions

Kind = Literal["any", "null", "boolean", "number", "string", "array", "object"]
"""What a value is in JSON: by this, members of a union are told apart."""


class NotOfItsType(TypeError):
    """The function returned something else than its annotation says."""


def identity_function(value: Any) -> Any:
    """For values that are JSON already."""
    return value


@dataclasses.dataclass
class Codec:
    """One type: to JSON and back."""

    kind: Kind
    encode: Callable[[Any], Any] = identity_function
    decode: Callable[[Any], Any] = identity_function


ANY = JSON = Codec("any")
_PLAIN: dict[Any, Kind] = {
    Any: "any",
    object: "any",
    inspect.Parameter.empty: "any",
    typing.NoReturn: "any",
    None: "null",
    type(None): "null",
    bool: "boolean",
    int: "number",
    str: "string",
    dict: "object",
    list: "array",
}
_TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
    bytes: (lambda value: base64.b64encode(value).decode(), lambda text: base64.b64decode(text, validate=True)),
}
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection)
_SETS = {set: set, collections.abc.Set: set, collections.abc.MutableSet: set, frozenset: frozenset}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_MICROSECOND = timedelta(microseconds=1)

Seen = dict[Any, Codec]


def name_of(annotation: Any) -> str:
    """As a message names it."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def codec_of(annotation: Any, seen: Seen) -> Codec:
    """The codec of a type. `seen` has the classes around it, which may hold each other."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _PLAIN:
        return Codec(_PLAIN[annotation])
    if annotation is float:
        return Codec("number", decode=lambda value: float(value) if isinstance(value, int) else value)
    if isinstance(annotation, typing.TypeVar):
        return ANY
    if hasattr(annotation, "__supertype__"):
        return codec_of(annotation.__supertype__, seen)
    if isinstance(annotation, typing_extensions.TypeAliasType):
        return codec_of(annotation.__value__, seen)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing_extensions.ReadOnly):
        return codec_of(arguments[0], seen)
    if origin is Literal:
        kinds = {codec_of(type(value), seen).kind for value in arguments}
        return Codec(kinds.pop() if len(kinds) == 1 else "any")
    if origin in (typing.Union, types.UnionType):
        return _union(annotation, [codec_of(member, seen) for member in arguments])
    if origin is not None:
        return _container(annotation, origin, arguments, seen)
    if isinstance(annotation, type) and annotation not in _MAPPINGS and annotation not in _LISTS:
        return _class(annotation, seen)
    raise _refused(annotation)


def _refused(annotation: Any, why: str = "has no one form in JSON") -> TypeError:
    return TypeError(f"the result can't be kept: {name_of(annotation)} {why}; give encode= and decode=")


_KINDS: dict[Any, Kind] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _union(annotation: Any, members: list[Codec]) -> Codec:
    """Told apart by what they are in JSON. Those of one kind have to be kept as they are."""
    by_kind: dict[Kind, Codec] = {}
    for member in members:
        before = by_kind.setdefault(member.kind, member)
        if before is not member and _changes(before, member):
            raise _refused(annotation, "has members that JSON doesn't tell apart")
    if "any" in by_kind and len(by_kind) > 1 and _changes(*by_kind.values()):
        raise _refused(annotation, "has members that JSON doesn't tell apart")

    def encode(value: Any) -> Any:
        errors: list[Exception] = []
        for member in by_kind.values():
            try:
                plain = member.encode(value)
            except NotOfItsType as error:
                errors.append(error)
                continue
            if member.encode is not identity_function or member.kind in ("any", _KINDS.get(type(value))):
                return plain
        if errors:
            raise errors[0]
        return value

    def decode(value: Any) -> Any:
        member = by_kind.get(_KINDS[type(value)]) or by_kind.get("any", ANY)
        return member.decode(value)

    return Codec("any", encode, decode)


def _changes(*members: Codec) -> bool:
    return any(member.decode is not identity_function and member.encode is not identity_function for member in members)


def _is_plain(*members: Codec) -> bool:
    return all(member.encode is identity_function and member.decode is identity_function for member in members)


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise _refused(cls, f"has a member whose type can't be found ({error})") from None


def _of(kind: type | tuple[type, ...], value: Any) -> Any:
    """The value, if it is what its annotation says."""
    if isinstance(value, kind):
        return value
    wanted = kind if isinstance(kind, type) else kind[0]
    raise NotOfItsType(f"{wanted.__name__} is annotated, and {type(value).__name__} was returned")


def _container(annotation: Any, origin: Any, arguments: tuple[Any, ...], seen: Seen) -> Codec:
    inner = [codec_of(argument, seen) for argument in arguments if argument is not Ellipsis]
    if origin in _LISTS and _is_plain(*inner):
        return Codec("array")
    if origin in _LISTS or (origin is tuple and Ellipsis in arguments):
        (item,), made = inner, tuple if origin is tuple else list
        return Codec(
            "array",
            lambda value: [item.encode(one) for one in _of((made, list, tuple), value)],
            lambda plain: made(item.decode(one) for one in plain),
        )
    if origin in _SETS:
        (item,), kind = inner, _SETS[origin]
        return Codec(
            "array",
            lambda value: [item.encode(one) for one in _of((set, frozenset), value)],
            lambda plain: kind(item.decode(one) for one in plain),
        )
    if origin is tuple:
        return _row(tuple, tuple, inner)
    if origin in _MAPPINGS:
        return _mapping(annotation, arguments[0], *inner)
    raise _refused(annotation)


def _row(kind: type, make: Callable[[Any], Any], items: list[Codec]) -> Codec:
    return Codec(
        "array",
        lambda value: [item.encode(one) for item, one in zip(items, _of(kind, value), strict=True)],
        lambda plain: make([item.decode(one) for item, one in zip(items, plain, strict=True)]),
    )


def _mapping(annotation: Any, name: Any, key: Codec, value: Codec) -> Codec:
    if name is int:
        key = Codec("string", str, int)
    elif key.kind != "string":
        raise _refused(annotation, "has keys that JSON doesn't have")
    if _is_plain(key, value):
        return Codec("object")
    return Codec(
        "object",
        lambda given: {
            key.encode(one): value.encode(held) for one, held in _of(collections.abc.Mapping, given).items()
        },
        lambda plain: {key.decode(one): value.decode(held) for one, held in plain.items()},
    )


def _class(cls: type, seen: Seen) -> Codec:
    if cls in seen:
        return seen[cls]
    if cls in _TEXTS:
        write, read = _TEXTS[cls]
        return Codec("string", lambda value: write(_of(cls, value)), read)
    if cls is timedelta:
        return Codec("number", lambda value: _of(cls, value) // _MICROSECOND, lambda plain: plain * _MICROSECOND)
    if issubclass(cls, enum.Enum):
        return _enum(cls)
    if hasattr(cls, "model_validate_json") and hasattr(cls, "model_dump"):
        return _model(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls, seen)
    if typing_extensions.is_typeddict(cls):
        return _typed_dict(cls, seen)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = _hints(cls)
        items = [codec_of(hints.get(name, Any), seen) for name in cls._fields]
        return _row(cls, lambda plain: cls(*plain), items)
    if issubclass(cls, (str, PurePath)):
        return Codec("string", lambda value: str(_of(cls, value)), cls)
    raise _refused(cls)


def _enum(cls: type[enum.Enum]) -> Codec:
    kinds: set[Kind] = {_KINDS.get(type(member.value), "object") for member in cls}
    if not kinds <= {"string", "number", "boolean", "null"}:
        raise _refused(cls)
    kind: Kind = kinds.pop() if len(kinds) == 1 else "any"
    return Codec(kind, lambda value: _of(cls, value).value, cls)


def _later(_: Any) -> Any:
    """Of a class that may hold itself, until its members are known."""
    raise AssertionError("the class is being read")


def _exactly(cls: type, value: Any) -> Any:
    """A subclass would come back as its parent."""
    if type(value) is not cls:
        raise NotOfItsType(f"{cls.__qualname__} is annotated, and {type(value).__qualname__} was returned")
    return value


def _model(cls: Any) -> Codec:
    """A pydantic model. By JSON, so that strict models read what they wrote."""
    return Codec(
        "object" if not getattr(cls, "__pydantic_root_model__", False) else "any",
        lambda value: _exactly(cls, value).model_dump(mode="json", by_alias=True, round_trip=True),
        lambda plain: cls.model_validate_json(json.dumps(plain)),
    )


def _dataclass(cls: Any, seen: Seen) -> Codec:
    codec = seen[cls] = Codec("object", _later, _later)
    hints = _hints(cls)
    fields = {field.name: codec_of(hints[field.name], seen) for field in dataclasses.fields(cls) if field.init}

    def encode(value: Any) -> Any:
        _exactly(cls, value)
        return {name: field.encode(getattr(value, name)) for name, field in fields.items()}

    def decode(plain: Any) -> Any:
        # A field that is newer than the answer takes its default.
        return cls(**{name: field.decode(plain[name]) for name, field in fields.items() if name in plain})

    codec.encode, codec.decode = encode, decode
    return codec


def _typed_dict(cls: Any, seen: Seen) -> Codec:
    codec = seen[cls] = Codec("object", _later, _later)
    hints = _hints(cls)
    members = {name: codec_of(hint, seen) for name, hint in hints.items()}
    codec.encode = lambda value: {n: members.get(n, ANY).encode(held) for n, held in _of(dict, value).items()}
    codec.decode = lambda plain: {n: members.get(n, ANY).decode(held) for n, held in plain.items()}
    return codec
