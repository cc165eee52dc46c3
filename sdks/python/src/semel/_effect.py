"""A function that runs under a key, and whether an error is its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Effect:
    """One run of a function. What it raises may be an error of this package, of a call inside it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._raised: BaseException | None = None

    def __call__(self, *args: Any) -> Any:
        try:
            return self._function(*args)
        except BaseException as error:
            self._raised = error
            raise

    async def arun(self, *args: Any) -> Any:
        """The same for a coroutine function."""
        try:
            return await self._function(*args)
        except BaseException as error:
            self._raised = error
            raise

    def raised(self, error: BaseException) -> bool:
        """Whether the function raised exactly this error."""
        return self._raised is error

    def caused(self, error: BaseException) -> bool:
        """Whether this is the function's own error, or what became of it."""
        return self._raised is not None and self._raised in (error, error.__cause__)
