"""A clock that the test moves, for the fake server and its clients at once."""

from __future__ import annotations

import time

import pytest

from semel._lease import LeaseState
from semel.retry import Course
from semel.testing import FakeSemel


class Clock:
    """The real one, and ahead of it."""

    def __init__(self, fake: FakeSemel, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fake, self._ahead = fake, 0.0
        for taker in (Course.__init__, LeaseState.__init__):
            monkeypatch.setattr(taker, "__kwdefaults__", {**(taker.__kwdefaults__ or {}), "clock": self})

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
        self._fake.advance(seconds)
