"""In place of `crewai.tools`, which would install hundreds of packages: a tool as its documentation describes it.

The arguments' model is made from the function's signature, and `run` validates by it.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import pydantic


class Tool:
    """What `@tool` makes."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        if function.__doc__ is None:
            raise ValueError("a tool needs a docstring")
        self.name, self.func = name, function
        fields: dict[str, Any] = {}
        for given in inspect.signature(function).parameters.values():
            default = ... if given.default is inspect.Parameter.empty else given.default
            fields[given.name] = (given.annotation, default)
        self.args_schema: type[pydantic.BaseModel] = pydantic.create_model(name, **fields)

    def run(self, **given: Any) -> Any:
        """As an agent calls it."""
        validated = self.args_schema.model_validate(given)
        return self.func(**{name: getattr(validated, name) for name in type(validated).model_fields})


def tool(name: str) -> Callable[[Callable[..., Any]], Tool]:
    """The decorator."""
    return lambda function: Tool(name, function)


def install() -> None:
    """As the module `crewai.tools`, where the real one isn't installed."""
    module = types.ModuleType("crewai.tools")
    module.tool = tool  # type: ignore[attr-defined]
    sys.modules.setdefault("crewai", types.ModuleType("crewai"))
    sys.modules.setdefault("crewai.tools", module)
