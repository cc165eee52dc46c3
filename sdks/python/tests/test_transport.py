"""The transport under other people's clients: one key, one effect, whatever the network does."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2 as httpx
import openai
import pytest

from semel import RetryPolicy
from semel.httpx import KEY, AsyncIdempotencyTransport, IdempotencyTransport, gave_up_of, info_of
from support.servers import free_port
from test_examples import said

QUICK = RetryPolicy(max_attempts=4, base=0.001, cap=0.01)


class Model(ThreadingHTTPServer):
    """A service that honours keys: its effects by key, and how many replies are lost first, or broken off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.effects: Counter[str] = Counter()
        self.asked: list[str | None] = []
        self.bodies: list[bytes] = []
        self.lose, self.cut, self.fail = 0, 0, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Model

    def log_message(self, *_: object) -> None:
        pass

    def _read(self) -> bytes:
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_POST(self) -> None:
        body, key = self._read(), self.headers["Idempotency-Key"]
        with self.server.lock:
            self.server.asked.append(key)
            self.server.bodies.append(body)
            number = len(self.server.asked)
            replayed = key is not None and self.server.effects[key] > 0
            if not replayed:
                self.server.effects[key or f"none-{number}"] += 1
        if number <= self.server.lose:
            self.close_connection = True
            return
        if number <= self.server.fail:
            self._say(503, b"{}")
        elif b'"stream":true' in body.replace(b" ", b""):
            self._stream()
        else:
            answer = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m"}
            message = {"role": "assistant", "content": f"done {number}"}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            self._say(200, json.dumps(answer | {"choices": [choice]}).encode(), replayed, cut=number <= self.server.cut)

    def _say(self, status: int, body: bytes, replayed: bool = False, cut: bool = False) -> None:
        coded = gzip.compress(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(coded)))
        if replayed:
            self.send_header("Idempotent-Replayed", "true")
        self.end_headers()
        self.wfile.write(coded[: len(coded) // 2] if cut else coded)
        self.close_connection = cut

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in ("a", "b"):
            delta = {"choices": [{"index": 0, "delta": {"content": word}}], "id": "c", "object": "x", "created": 1}
            self.wfile.write(f"data: {json.dumps(delta | {'model': 'm'})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


@pytest.fixture
def model() -> Iterator[Model]:
    server = Model()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(client: openai.OpenAI) -> str | None:
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    return answer.choices[0].message.content


def over(model: Model, retry: RetryPolicy = QUICK) -> openai.OpenAI:
    http = httpx.Client(transport=IdempotencyTransport(retry=retry))
    return openai.OpenAI(base_url=model.url, api_key="k", http_client=http, max_retries=0)


@pytest.mark.parametrize("fault", ["lose", "cut", "fail"])
def test_the_openai_client_acts_once_where_replies_are_lost(model: Model, fault: str) -> None:
    setattr(model, fault, 2)
    with over(model) as client:
        assert ask(client) == "done 3"
    assert (len(model.asked), list(model.effects.values())) == (3, [1])
    assert len(set(model.bodies)) == 1


def test_without_the_transport_it_acts_twice(model: Model) -> None:
    model.lose = 1
    with openai.OpenAI(base_url=model.url, api_key="k", max_retries=2) as client:
        ask(client)
    assert sum(model.effects.values()) == 2


async def test_the_asynchronous_openai_client_too(model: Model) -> None:
    model.lose = 2
    http = httpx.AsyncClient(transport=AsyncIdempotencyTransport(retry=QUICK))
    async with openai.AsyncOpenAI(base_url=model.url, api_key="k", http_client=http, max_retries=0) as client:
        answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content == "done 3"
    assert list(model.effects.values()) == [1]


def test_an_event_stream_goes_on_as_it_comes(model: Model) -> None:
    model.lose = 1
    with over(model) as client:
        stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        assert [part.choices[0].delta.content for part in stream] == ["a", "b"]
    assert list(model.effects.values()) == [1]


async def test_an_event_stream_goes_on_as_it_comes_with_asyncio(model: Model) -> None:
    http = httpx.AsyncClient(transport=AsyncIdempotencyTransport(retry=QUICK))
    async with openai.AsyncOpenAI(base_url=model.url, api_key="k", http_client=http, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert [part.choices[0].delta.content async for part in stream] == ["a", "b"]


def test_giving_up_is_told_in_the_clients_own_words(model: Model) -> None:
    model.lose, model.fail = 4, 8
    with over(model) as client:
        with pytest.raises(openai.APIConnectionError) as lost:
            ask(client)
        with pytest.raises(openai.InternalServerError) as failed:
            ask(client)
    gave_up = gave_up_of(lost.value)
    assert gave_up is not None
    assert (gave_up.attempts, gave_up.unknown, gave_up.key) == (4, True, model.asked[0])
    info = info_of(failed.value.response)
    assert info is not None
    assert info.gave_up is not None
    assert (info.attempts, info.gave_up.unknown, info.key) == (4, True, model.asked[-1])
    assert info.key not in repr(info)


def test_nobody_there_is_told_as_never_sent() -> None:
    transport = IdempotencyTransport(retry=QUICK)
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.ConnectError) as refused:
        client.post(f"http://127.0.0.1:{free_port()}/")
    gave_up = gave_up_of(refused.value)
    assert gave_up is not None
    assert not gave_up.unknown
    assert gave_up_of(ValueError()) is None


def test_a_request_brings_its_key(model: Model) -> None:
    with httpx.Client(transport=IdempotencyTransport(retry=QUICK)) as client:
        first = client.post(model.url, json={}, headers={"Idempotency-Key": "k-1"})
        again = client.post(model.url, json={}, extensions={KEY: "k-1"})
        client.post(model.url, json={})
    infos = [info_of(answer) for answer in (first, again)]
    assert [(info.key, info.attempts, info.replayed) for info in infos if info] == [("k-1", 1, False), ("k-1", 1, True)]
    assert model.asked[:2] == ["k-1", "k-1"]
    assert (model.asked[2] or "").startswith("idem_")


def test_other_methods_pass_unless_they_have_a_key() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("idempotency-key"))
        return httpx.Response(503 if len(seen) < 3 else 200)

    with httpx.Client(transport=IdempotencyTransport(httpx.MockTransport(answer), retry=QUICK)) as client:
        assert client.get("http://a/").status_code == 503
        assert client.put("http://a/", headers={"Idempotency-Key": "k-1"}).status_code == 200
    assert seen == [None, "k-1", "k-1"]


def test_a_redirect_has_the_key_of_its_request() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("idempotency-key"))
        return httpx.Response(307, headers={"Location": "/b"}) if request.url.path == "/a" else httpx.Response(201)

    transport = IdempotencyTransport(httpx.MockTransport(answer))
    with httpx.Client(transport=transport, follow_redirects=True) as client:
        assert client.post("http://a/a", json={}).status_code == 201
    assert len(set(seen)) == 1
    assert len(seen) == 2


def test_a_body_that_is_made_as_it_is_sent_is_kept(model: Model) -> None:
    def parts() -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    model.lose = 1
    with httpx.Client(transport=IdempotencyTransport(retry=QUICK)) as client:
        assert client.post(model.url, content=parts()).status_code == 200
    assert model.bodies == [b"onetwo"] * 2


async def test_a_body_that_is_made_as_it_is_sent_is_kept_with_asyncio(model: Model) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    model.lose = 1
    async with httpx.AsyncClient(transport=AsyncIdempotencyTransport(retry=QUICK)) as client:
        assert (await client.post(model.url, content=parts())).status_code == 200
    assert model.bodies == [b"onetwo"] * 2


def test_a_large_answer_goes_on_and_a_large_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.httpx.MAX_ANSWER_BYTES", 10)
    monkeypatch.setattr("semel.httpx.MAX_REQUEST_BYTES", 10)
    wrapped = httpx.MockTransport(lambda _: httpx.Response(200, content=iter([b"123456", b"789012", b"3"])))
    with httpx.Client(transport=IdempotencyTransport(wrapped)) as client:
        assert client.post("http://a/").content == b"1234567890123"
        with pytest.raises(ValueError, match="10 bytes"):
            client.post("http://a/", content=b"12345678901")


def test_the_openai_example(model: Model) -> None:
    model.lose = 2
    assert said("openai_client.py", OPENAI_URL=model.url) == ["done 3"]
    assert list(model.effects.values()) == [1]
