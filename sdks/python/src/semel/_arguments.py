"""Keys and payloads of decorated functions, from the arguments of a call."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Mapping
from typing import Any

from .errors import KeyInvalid


def bound(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by name, so that `f(1)` and `f(order=1)` ask for the same."""
    found = inspect.signature(function).bind(*args, **kwargs)
    found.apply_defaults()
    return {name: value for name, value in found.arguments.items() if name not in ("self", "cls")}


def reader(function: Callable[..., Any], read: Callable[..., Any]) -> Callable[..., Any]:
    """`read`, called with the arguments of a call: positional ones come so, also where they were passed by name."""
    signature = inspect.signature(function)

    def called(*args: Any, **kwargs: Any) -> Any:
        found = signature.bind(*args, **kwargs)
        try:
            inspect.signature(read).bind(*found.args, **found.kwargs)
        except (TypeError, ValueError):
            return read(*args, **kwargs)
        return read(*found.args, **found.kwargs)

    return called


def key_of(function: Callable[..., Any], key: str | Callable[..., str]) -> Callable[..., str]:
    """What makes the key of a call: a function of the arguments, or a text such as `charge-{order}`."""
    if not isinstance(key, str):
        return reader(function, key)
    signature = inspect.signature(function)
    _check_template(key, signature)

    def made(*args: Any, **kwargs: Any) -> str:
        found = signature.bind(*args, **kwargs)
        found.apply_defaults()
        return _TEMPLATES.vformat(key, (), found.arguments)

    return made


def key_of_members(template: str, members: Mapping[str, Any]) -> str:
    """The key of a document: `charge-{order}` with its member `order`. `KeyInvalid` where it has none."""
    try:
        return _TEMPLATES.vformat(template, (), members)
    except (LookupError, AttributeError):
        raise KeyInvalid("empty") from None


def _check_template(template: str, signature: inspect.Signature) -> None:
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise TypeError(f"the key is no template: {error}") from None
    roots = [re.split(r"[.\[]", name, maxsplit=1)[0] for name in fields]
    if not roots:
        raise TypeError(f"every call would have the key {template!r}: name an argument, such as {{order}}")
    unknown = [name for name in roots if name not in signature.parameters]
    if unknown:
        raise TypeError(f"the key names {unknown[0]!r}, which is no argument of the function")


class _Templates(string.Formatter):
    def get_field(self, field_name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        found, used = super().get_field(field_name, args, kwargs)
        if found is None or found == "":
            # Two calls without this would share a key.
            raise KeyInvalid("empty")
        return found, used


_TEMPLATES = _Templates()
