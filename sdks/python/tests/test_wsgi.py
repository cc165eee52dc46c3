"""The WSGI middleware, with the fake server, and Flask as it is on an engine in its process."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from semel import Terms, current_lease, new_key
from semel.testing import FakeSemel
from semel.wsgi import LEASE, Environ, IdempotencyMiddleware
from support.servers import free_port, python, running, until_answered

EXAMPLES = Path(__file__).parents[1] / "examples"
Start = Callable[..., Any]


class App:
    """Answers as it is told, and counts."""

    def __init__(self, *parts: bytes, status: str = "201 Created", headers: dict[str, str] | None = None) -> None:
        self.parts, self.status, self.headers = parts, status, headers or {}
        self.bodies: list[bytes] = []
        self.leases: list[Any] = []
        self.pause = 0.0
        self.closed = 0

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        self.bodies.append(environ["wsgi.input"].read())
        self.leases.append((environ.get(LEASE), current_lease()))
        start_response(self.status, list(self.headers.items()))
        return Parts(self)


class Parts:
    def __init__(self, app: App) -> None:
        self.app = app

    def __iter__(self) -> Iterator[bytes]:
        for part in self.app.parts:
            time.sleep(self.app.pause)
            if part == b"!":
                raise ZeroDivisionError
            yield part

    def close(self) -> None:
        self.app.closed += 1


def post(app: Any, key: str | None = "k-1", body: bytes = b"{}", path: str = "/charges", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        named["Idempotency-Key"] = key
    with httpx.Client(transport=httpx.WSGITransport(app=app), base_url="http://shop.test") as client:
        return client.post(path, content=body, headers={"Content-Type": "application/json", **named})


def test_a_request_runs_once_and_is_replayed() -> None:
    fake, app = FakeSemel(), App(b"do", b"ne", headers={"X-Own": "1", "Link": "</1>"})
    door = IdempotencyMiddleware(app, semel=fake.semel(), scope="charges")
    first, again, other = post(door, body=b'{"a": 1}'), post(door, body=b'{"a":1}'), post(door, body=b'{"a":2}')
    assert (first.status_code, first.content, first.headers["x-own"]) == (201, b"done", "1")
    assert (again.status_code, again.content, again.headers["link"]) == (201, b"done", "</1>")
    assert again.headers["idempotent-replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert (app.bodies, app.closed, fake.state("charges", "k-1")) == ([b'{"a": 1}'], 1, "completed")
    ((lease, current),) = app.leases
    assert lease is current is not None


def test_requests_without_a_key_pass_or_are_refused() -> None:
    app = App(b"ok")
    assert post(IdempotencyMiddleware(app, semel=FakeSemel().semel()), key=None).content == b"ok"
    assert app.leases == [(None, None)]
    refused = post(IdempotencyMiddleware(app, semel=FakeSemel().semel(), require_key=True), key=None)
    assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_required")
    bad = post(IdempotencyMiddleware(app, semel=FakeSemel().semel()), key="a b")
    assert (bad.status_code, bad.json()["code"], len(app.bodies)) == (400, "idempotency_key_invalid", 1)


@pytest.mark.parametrize(
    ("status", "said", "state"),
    [
        ("201 Created", "no-effect", "released"),
        ("201 Created", "Unknown ", "in_doubt"),
        ("402 Payment Required", None, "failed"),
        ("500 Internal Server Error", None, "released"),
        ("429 Too Many Requests", None, "released"),
    ],
)
def test_an_answer_says_what_became_of_it(status: str, said: str | None, state: str) -> None:
    fake = FakeSemel()
    app = App(b"ok", status=status, headers={"Semel-Outcome": said} if said else {})
    answer = post(IdempotencyMiddleware(app, semel=fake.semel()))
    assert (answer.status_code, "semel-outcome" in answer.headers) == (int(status[:3]), False)
    assert fake.state("http", "k-1") == state


@pytest.mark.parametrize(("path", "state"), [("/refunds", "in_doubt"), ("/charges", "released")])
def test_an_error_follows_the_terms_of_its_path(path: str, state: str) -> None:
    fake, app = FakeSemel(), App(b"!")
    door = IdempotencyMiddleware(app, semel=fake.semel(), routes={"/refunds": Terms(crash="hold")})
    with pytest.raises(ZeroDivisionError):
        post(door, path=path)
    assert (fake.state("http", "k-1"), app.closed) == (state, 1)


@pytest.mark.parametrize(
    ("parts", "headers", "pause"),
    [
        ((b"x" * 700_000, b"y" * 700_000), {}, 0.0),
        ((b"data: 1\n\n", b"data: 2\n\n"), {"Content-Type": "text/event-stream"}, 0.0),
        ((b"1\n", b"2\n", b"3\n"), {}, 0.2),
    ],
    ids=["large", "events", "slow"],
)
def test_what_is_large_slow_or_a_stream_is_passed_on(
    parts: tuple[bytes, ...], headers: dict[str, str], pause: float
) -> None:
    fake, app = FakeSemel(), App(*parts, headers=headers)
    app.pause = pause
    door = IdempotencyMiddleware(app, semel=fake.semel(), gather=0.1)
    first = post(door)
    assert (first.status_code, first.content, app.closed) == (201, b"".join(parts), 1)
    assert fake.state("http", "k-1") == "completed"
    again = post(door)
    assert (again.status_code, again.headers["idempotent-not-kept"], len(app.bodies)) == (201, "body", 1)


def asked(door: IdempotencyMiddleware, **more: Any) -> tuple[list[Any], Iterable[bytes]]:
    """Without a client, which reads every answer to its end."""
    started: list[Any] = []
    environ: Environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k-1"}
    environ |= {"wsgi.input": io.BytesIO(b"12345"), "CONTENT_LENGTH": "5", **more}
    return started, door(environ, lambda *given: started.append(given))


@pytest.mark.parametrize(("parts", "broken"), [((b"data: 1", b"!"), True), ((b"data: 1", b"data: 2"), False)])
def test_a_stream_that_breaks_off_or_that_nobody_reads_frees_its_key(parts: tuple[bytes, ...], broken: bool) -> None:
    fake, app = FakeSemel(), App(*parts, headers={"Content-Type": "text/event-stream"})
    _, answer = asked(IdempotencyMiddleware(app, semel=fake.semel()))
    assert fake.state("http", "k-1") == "running"
    rest = iter(answer)
    assert next(rest) == b"data: 1"
    if broken:
        with pytest.raises(ZeroDivisionError):
            next(rest)
    answer.close()  # type: ignore[attr-defined]
    assert (fake.state("http", "k-1"), app.closed) == ("released", 1)


def test_bodies_are_bounded_whole_and_comparable() -> None:
    app = App(b"ok")
    door = IdempotencyMiddleware(app, semel=FakeSemel().semel(), max_body=4)
    statuses = [asked(door)[0][0][0][:3], asked(door, CONTENT_LENGTH="9")[0][0][0][:3]]
    cut = IdempotencyMiddleware(app, semel=FakeSemel().semel())
    statuses.append(asked(cut, CONTENT_LENGTH="9")[0][0][0][:3])
    statuses.append(asked(cut, CONTENT_TYPE="application/json", **{"wsgi.input": io.BytesIO(b"{1:2}")})[0][0][0][:3])
    assert (statuses, app.bodies) == (["413", "413", "400", "400"], [])
    endless = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    assert asked(cut, **endless)[0][0][0][:3] == "201"
    assert app.bodies == [b"12345"]


def test_an_application_that_writes_and_one_that_answers_late() -> None:
    def writing(_: Environ, start_response: Start) -> Iterable[bytes]:
        start_response("201 Created", [])(b"written")
        return []

    def late(_: Environ, start_response: Start) -> Iterable[bytes]:
        start_response("201 Created", [])
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as error:
            start_response("500 Internal Server Error", [], (type(error), error, None))
        yield b"late"

    for app, content, state in ((writing, b"written", "completed"), (late, b"late", "released")):
        fake = FakeSemel()
        assert post(IdempotencyMiddleware(app, semel=fake.semel())).content == content
        assert fake.state("http", "k-1") == state


def test_whose_key_it_is_and_where() -> None:
    app, fake = App(b"ok"), FakeSemel()
    door = IdempotencyMiddleware(app, semel=fake.semel(), principal=lambda environ: environ.get("HTTP_X_USER"))
    answers = [post(door, X_User=user).headers.get("idempotent-replayed") for user in ("ada", "bob", "ada")]
    assert (answers, len(app.bodies)) == ([None, None, "true"], 2)
    assert post(door, key="k-2", Authorization="a").status_code == 201
    assert post(door, key="k-2", Authorization="b").status_code == 422


def test_a_server_that_is_away_starts_nothing() -> None:
    fake, app = FakeSemel(), App(b"ok")
    fake.lose_replies(1000)
    answer = post(IdempotencyMiddleware(app, semel=fake.semel()))
    assert (answer.status_code, answer.json()["code"], app.bodies) == (503, "idempotency_store_unavailable", [])


def test_an_outcome_that_cant_be_recorded_is_told() -> None:
    fake = FakeSemel(lease=0.3)

    def app(_: Environ, start_response: Start) -> Iterable[bytes]:
        fake.lose_replies(10_000)
        start_response("201 Created", [])
        return [b"ok"]

    answer = post(IdempotencyMiddleware(app, semel=fake.semel()))
    assert (answer.status_code, answer.json()["code"]) == (503, "idempotency_unrecorded")


def test_flask_acts_once(tmp_path: Path) -> None:
    port = free_port()
    env = {"STORE_URL": f"sqlite://{tmp_path}/keys.db", "PORT": str(port)}
    process = python(str(EXAMPLES / "flask_app.py"), env=env, stdout=-3, stderr=-3)
    url, key = f"http://127.0.0.1:{port}/charges", new_key()
    with running(process):
        until_answered(url, process)

        def send(_: int) -> httpx.Response:
            body = json.dumps({"order": key, "cents": 5})
            headers = {"Idempotency-Key": key, "Content-Type": "application/json", "X-User": "ada"}
            return httpx.post(url, content=body, headers=headers, timeout=30)

        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(send, range(4)))
        assert {(answer.status_code, answer.json()["charge"]) for answer in answers} == {(201, "ch_1")}
        (charge,) = httpx.get(url).json()
        assert charge["key"].startswith("semel-")
