"""AWS Lambda, with events as API Gateway, function URLs and load balancers send them."""

from __future__ import annotations

import base64
import importlib
import json
from typing import Any

import pytest

from semel import KeyInvalid, Semel, Terms, current_lease
from semel.aws_lambda import idempotent, idempotent_http
from semel.testing import FakeSemel


class Context:
    """Two seconds are left."""

    def get_remaining_time_in_millis(self) -> int:
        return 2000


def v2(body: Any = None, key: str | None = "k-1", **headers: str) -> dict[str, Any]:
    named = {"content-type": "application/json", "host": "a", **headers}
    return {
        "version": "2.0",
        "rawPath": "/charges",
        "rawQueryString": "",
        "headers": named | ({"idempotency-key": key} if key else {}),
        "requestContext": {"http": {"method": "POST", "path": "/charges"}},
        "body": json.dumps(body or {}),
        "isBase64Encoded": False,
    }


def v1(body: Any = None) -> dict[str, Any]:
    many = {"Content-Type": ["application/json"], "Idempotency-Key": ["k-1"], "Host": ["a"]}
    return {
        "httpMethod": "POST",
        "path": "/charges",
        "headers": {name: lines[0] for name, lines in many.items()},
        "multiValueHeaders": many,
        "queryStringParameters": None,
        "requestContext": {},
        "body": base64.b64encode(json.dumps(body or {}).encode()).decode(),
        "isBase64Encoded": True,
    }


@pytest.fixture
def fake() -> FakeSemel:
    """A server in memory."""
    return FakeSemel()


@pytest.fixture
def once(fake: FakeSemel) -> Semel:
    """A client of it."""
    return fake.semel(terms=Terms(crash="hold"))


def test_an_event_runs_once(fake: FakeSemel, once: Semel) -> None:
    runs: list[Any] = []

    @idempotent(once, "charge", key="charge-{detail[order]}", payload=lambda event: event["detail"])
    def handler(event: Any, context: Any) -> dict[str, int]:
        lease = current_lease()
        assert lease is not None
        runs.append(lease.remaining)
        return {"runs": len(runs)}

    events = [{"id": "a", "detail": {"order": "o-1"}}, {"id": "b", "detail": {"order": "o-1"}}]
    assert [handler(event, Context()) for event in events] == [{"runs": 1}] * 2
    assert 1 < runs[0] <= 2, "no lease outlives its function"
    assert fake.state("charge", "charge-o-1") == "completed"
    with pytest.raises(KeyInvalid):
        handler({"detail": {}}, Context())


@pytest.mark.parametrize("event", [v2, v1])
def test_a_request_runs_once_and_is_replayed(fake: FakeSemel, once: Semel, event: Any) -> None:
    runs: list[Any] = []

    @idempotent_http(once)
    def handler(event: Any, context: Any) -> dict[str, Any]:
        runs.append(current_lease())
        return {"statusCode": 201, "headers": {"Location": "/1"}, "body": '{"n": 1.50}'}

    first, again = handler(event(), Context()), handler(event(), Context())
    assert (first["statusCode"], again["statusCode"], again["body"]) == (201, 201, '{"n": 1.50}')
    assert (again["headers"]["Location"], again["headers"]["Idempotent-Replayed"]) == ("/1", "true")
    assert ("multiValueHeaders" in again) == (event is v1)
    refused = handler(event({"other": 1}), Context())
    assert (refused["statusCode"], json.loads(refused["body"])["code"]) == (422, "idempotency_conflict")
    assert len(runs) == 1
    assert runs[0] is not None


@pytest.mark.parametrize(
    ("response", "state"),
    [
        ({"statusCode": 500}, "in_doubt"),
        ({"statusCode": 503, "headers": {"Semel-Outcome": "no-effect"}}, "released"),
        ({"statusCode": 402, "body": "no"}, "failed"),
        ({"answer": 1}, "completed"),
        ("text", "completed"),
        ({"statusCode": 200, "body": base64.b64encode(b"\xff").decode(), "isBase64Encoded": True}, "completed"),
    ],
)
def test_an_answer_says_what_became_of_it(fake: FakeSemel, once: Semel, response: Any, state: str) -> None:

    def answering(event: Any, context: Any) -> Any:
        return response

    handler = idempotent_http(once)(answering)
    first = handler(v2(), None)
    assert fake.state("http", "k-1") == state
    if isinstance(response, dict):
        assert first.get("statusCode") == response.get("statusCode")
        assert "Semel-Outcome" not in first.get("headers", {})
    if state == "completed":
        again = handler(v2(), None)
        assert again["statusCode"] == 200
        assert again["isBase64Encoded"] == (again["body"] == "/w==")


def test_an_error_follows_the_terms(fake: FakeSemel, once: Semel) -> None:
    def broken(event: Any, context: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        idempotent_http(once)(broken)(v2(), None)
    assert fake.state("http", "k-1") == "in_doubt"


def test_requests_without_a_key_pass_or_are_refused(fake: FakeSemel, once: Semel) -> None:
    def handler(event: Any, context: Any) -> Any:
        assert current_lease() is None
        return "passed"

    assert idempotent_http(once)(handler)(v2(key=None), None) == "passed"
    assert idempotent_http(once, require_key=True)(handler)(v2(key=None), None)["statusCode"] == 400
    assert idempotent_http(once)(handler)(v2(key="a b"), None)["statusCode"] == 400
    assert fake.calls == []


def test_whose_key_it_is(once: Semel) -> None:
    runs: list[int] = []

    @idempotent_http(once, principal=lambda event: event["headers"].get("x-user"))
    def handler(event: Any, context: Any) -> None:
        runs.append(1)

    for user in ("ada", "bob", "ada"):
        handler(v2(**{"x-user": user}), None)
    assert len(runs) == 2


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_URL", "memory://")
    example = importlib.import_module("lambda_app")
    answers = [example.http_handler(v2({"order": "o-1"}), Context()) for _ in range(2)]
    assert [answer["body"] for answer in answers] == ['{"charge": "ch_1"}'] * 2
    event = {"detail": {"order": "o-1"}}
    assert [example.event_handler(event, Context()) for _ in range(2)] == ["ch_2"] * 2
    assert example.http_handler(v2(key=None), Context())["statusCode"] == 400
    example.once.close()
