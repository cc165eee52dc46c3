"""What a function returns comes back as what its annotation says, from the first run and from every replay."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict

import pydantic
import pytest

from semel import AnswerNotKept, AnswerUnreadable
from semel.testing import FakeSemel


class Currency(enum.Enum):
    EUR = "eur"


class Money(pydantic.BaseModel):
    cents: int
    at: datetime


@dataclass
class Line:
    name: str
    price: Decimal


@dataclass
class Receipt:
    id: uuid.UUID
    lines: list[Line]
    paid: datetime | None = None
    tags: set[str] = field(default_factory=set)


class Point(NamedTuple):
    x: int
    y: Decimal


class Row(TypedDict, total=False):
    day: date
    n: int


class Handle:
    """Nothing that JSON could hold."""


OrderId = NewType("OrderId", str)
NOW = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)

CASES: list[tuple[Any, Any]] = [
    (Money, Money(cents=5, at=NOW)),
    (list[Money], [Money(cents=5, at=NOW)]),
    (Receipt, Receipt(uuid.UUID(int=7), [Line("a", Decimal("1.50"))], NOW, {"x", "y"})),
    (Optional[Receipt], None),  # noqa: UP045
    (Receipt | None, Receipt(uuid.UUID(int=7), [])),
    (datetime, NOW),
    (datetime | int, NOW),
    (date, date(2026, 1, 2)),
    (time, time(3, 4)),
    (timedelta, timedelta(seconds=1.5)),
    (Decimal, Decimal("1.10")),
    (Currency, Currency.EUR),
    (tuple[int, Decimal], (1, Decimal("2"))),
    (tuple[Decimal, ...], (Decimal("2"),)),
    (dict[str, datetime], {"a": NOW}),
    (Mapping[uuid.UUID, int], {uuid.UUID(int=1): 2}),
    (dict[int, str], {1: "a"}),
    (frozenset[int], frozenset({1, 2})),
    (Sequence[date], [date(2026, 1, 2)]),
    (bytes, b"\x00\xff"),
    (Point, Point(1, Decimal("2"))),
    (Row, {"day": date(2026, 1, 2), "n": 1}),
    (Annotated[datetime, "when"], NOW),
    (Literal["a"], "a"),
    (OrderId, OrderId("o-1")),
    (float, 1.5),
    (None, None),
    (Any, {"a": [1]}),
    (object, [1]),
    (int | str | None, "a"),
    (list[int] | dict[str, list[str]] | list[str], ["a"]),
]


@pytest.mark.parametrize(("annotation", "value"), CASES, ids=lambda value: str(value)[:40])
def test_a_result_comes_back_as_its_annotation_says(annotation: Any, value: Any) -> None:
    semel = FakeSemel().semel()

    def function(order: str) -> Any:
        return value

    function.__annotations__["return"] = annotation
    once = semel.idempotent("order", key="{order}")(function)
    first, again = once("a"), once("a")
    assert (first, again) == (value, value)
    assert type(first) is type(again) is type(value)


async def test_a_coroutines_result_too() -> None:
    @FakeSemel().async_semel().idempotent("order", key="{order}")
    async def pay(order: str) -> Money:
        return Money(cents=5, at=NOW)

    assert [await pay("a"), await pay("a")] == [Money(cents=5, at=NOW)] * 2


def test_a_result_of_run_too() -> None:
    semel = FakeSemel().semel()

    def pay(_: object) -> Money:
        return Money(cents=5, at=NOW)

    assert [semel.run("order", "a", pay).value for _ in range(2)] == [Money(cents=5, at=NOW)] * 2


def test_without_an_annotation_everybody_gets_what_json_gives_back() -> None:
    semel = FakeSemel().semel()
    effect: Callable[[object], Any] = lambda _: {"at": NOW, "money": Money(cents=5, at=NOW), "pair": (1, 2)}  # noqa: E731
    first, again = (semel.run("order", "a", effect).value for _ in range(2))
    assert first == again
    assert (first["money"]["cents"], first["pair"]) == (5, [1, 2])


def test_a_result_that_cant_be_kept_is_refused_before_anything_runs() -> None:
    semel = FakeSemel().semel()
    with pytest.raises(TypeError, match="Handle"):

        @semel.idempotent("order", key="{order}")
        def opened(order: str) -> Handle:
            return Handle()

    kept = semel.idempotent("order", key="{order}", encode=lambda _: "h", decode=lambda _: Handle())

    @kept
    def encoded(order: str) -> Handle:
        return Handle()

    assert isinstance(encoded("a"), Handle)


def test_a_result_that_turns_out_to_be_no_json_says_so() -> None:
    semel = FakeSemel().semel()
    with pytest.raises(AnswerNotKept, match=r"Handle.*encode=") as first:
        semel.run("order", "a", lambda _: Handle())
    assert first.value.size == 0
    with pytest.raises(AnswerNotKept):
        semel.run("order", "a", lambda _: Handle())


def test_a_result_that_isnt_what_its_annotation_says_is_told_as_that() -> None:
    semel = FakeSemel().semel()

    @semel.idempotent("order", key="{order}")
    def wrong(order: str) -> datetime:
        return "no time"  # type: ignore[return-value]

    with pytest.raises(AnswerNotKept, match="datetime is annotated, and str was returned") as first:
        wrong("a")
    assert first.value.value == "no time"
    with pytest.raises(AnswerNotKept):
        wrong("a")


def test_an_answer_of_another_version_says_so() -> None:
    semel = FakeSemel().semel()

    def older(_: object) -> dict[str, str]:
        return {"name": "a"}

    def newer(_: object) -> Line:
        return Line("a", Decimal(1))

    semel.run("order", "a", older)
    with pytest.raises(AnswerUnreadable, match="Line") as told:
        semel.run("order", "a", newer)
    assert told.value.key == "a"


@pytest.mark.parametrize("annotation", [datetime | str, list[Handle], dict[Point, int], Line | Receipt, complex])
def test_a_type_that_json_doesnt_tell_apart_is_refused(annotation: Any) -> None:
    def function(order: str) -> Any: ...

    function.__annotations__["return"] = annotation
    with pytest.raises(TypeError, match="encode="):
        FakeSemel().semel().idempotent("order", key="{order}")(function)


@dataclass
class Lost:
    """Its field is of a type that isn't there."""

    at: Missing  # type: ignore[name-defined]  # noqa: F821


def test_a_type_whose_member_cant_be_found_is_refused() -> None:
    with pytest.raises(TypeError, match="Missing"):

        @FakeSemel().semel().idempotent("order", key="{order}")
        def lost(order: str) -> Lost:
            raise AssertionError("it never runs")


def test_an_annotation_that_cant_be_found_is_json() -> None:
    class Local:
        pass

    def here(order: str) -> Local:
        return {"order": order}  # type: ignore[return-value]

    once: Any = FakeSemel().semel().idempotent("order", key="{order}")(here)
    assert [once("a"), once("a")] == [{"order": "a"}] * 2


@dataclass
class Tree:
    """One that holds others of its own."""

    name: str
    leaves: list[Tree] = field(default_factory=list)


def test_a_type_may_hold_itself() -> None:
    tree = Tree("a", [Tree("b")])

    def grown(_: object) -> Tree:
        return tree

    semel = FakeSemel().semel()
    assert [semel.run("order", "a", grown).value for _ in range(2)] == [tree, tree]
