"""Webhooks: what a provider signed is believed, and handled once."""

from __future__ import annotations

import asyncio
import hmac
import importlib
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from semel import AnswerNotKept, EffectFailed, Final, NoEffect, RetryPolicy, SemelError, Terms, Unrecorded, webhooks
from semel.errors import ProblemError
from semel.testing import FakeSemel
from semel.webhooks import Event, Verifier, WebhookRefused

CASES: list[Any] = json.loads((Path(__file__).parents[3] / "spec" / "vectors" / "webhooks.json").read_text())["cases"]
PRESETS: dict[str, Callable[..., Verifier]] = {
    "stripe": webhooks.stripe,
    "github": webhooks.github,
    "shopify": webhooks.shopify,
    "slack": webhooks.slack,
    "standard": webhooks.standard,
}
SECRET = "whsec_test"
BODY = b'{"id":"evt_1"}'


def verifier_of(case: Any) -> Verifier:
    more = {} if case["tolerance"] is None else {"tolerance": case["tolerance"]}
    now = case["now"] or 0
    return PRESETS[case["preset"]](case["secrets"], clock=lambda: now, **more)


def headers(body: bytes = BODY, secret: str = SECRET) -> dict[str, str]:
    seconds = str(int(time.time()))
    digest = hmac.digest(secret.encode(), seconds.encode() + b"." + body, "sha256").hex()
    return {"Stripe-Signature": f"t={seconds},v1={digest}", "Content-Type": "application/json"}


@pytest.fixture
def fake() -> FakeSemel:
    """A server in memory."""
    return FakeSemel()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_what_is_believed(case: Any) -> None:
    lines = [(str(name), str(value)) for name, value in case["headers"]]
    if case["refused"] is None:
        event = verifier_of(case).verify(lines, case["body"].encode())
        assert (event.id, event.provider, event.body) == (case["id"], case["preset"], case["body"].encode())
        return
    with pytest.raises(WebhookRefused) as refused:
        verifier_of(case).verify(lines, case["body"].encode())
    assert refused.value.reason == case["refused"]
    assert refused.value.status in (400, 401)


def test_every_reason_has_a_case() -> None:
    assert {case["refused"] for case in CASES} == {None, "missing", "malformed", "signature", "expired", "no_id"}
    assert {case["preset"] for case in CASES} == set(PRESETS)
    assert sum(case["source"] == "published" for case in CASES) == 3


def test_bodies_and_headers_are_bounded() -> None:
    small = webhooks.stripe(SECRET, max_body=len(BODY))
    assert small.verify(headers(), BODY).json() == {"id": "evt_1"}
    with pytest.raises(WebhookRefused) as refused:
        small.verify(headers(BODY + b" "), BODY + b" ")
    assert (refused.value.reason, refused.value.status) == ("too_large", 413)
    long = headers()["Stripe-Signature"] + ",v1=" + "0" * 5000
    with pytest.raises(WebhookRefused, match="malformed"):
        small.verify({"stripe-signature": long}, BODY)


@pytest.mark.parametrize("secrets", ["", b"", [], [SECRET, ""]])
def test_an_empty_secret_is_none(secrets: Any) -> None:
    with pytest.raises(ValueError, match="secret"):
        webhooks.stripe(secrets)


def test_secrets_of_standard_webhooks_are_base64_or_bytes() -> None:
    with pytest.raises(ValueError, match="base64"):
        webhooks.standard("whsec_!")
    assert webhooks.standard(b"raw")


def test_nothing_secret_is_shown() -> None:
    verifier = webhooks.stripe(SECRET)
    event = verifier.verify(headers(), BODY)
    with pytest.raises(WebhookRefused) as refused:
        verifier.verify(headers(secret="other"), BODY)
    for text in (repr(verifier), repr(event), str(refused.value)):
        assert SECRET not in text
        assert "Stripe-Signature" not in text
        assert "v1=" not in text


def test_any_id_makes_a_key() -> None:
    def key(name: str) -> str:
        return Event("github", name, b"", {}).key

    assert key("72d3162e-cc78-11e3") == "72d3162e-cc78-11e3"
    for odd in ("a b", "é", "x" * 300, "\udcff"):
        assert key(odd).startswith("id-")
    assert len({key("a b"), key("a  b"), key("x" * 300), key("x" * 301)}) == 4


def test_an_event_is_handled_once(fake: FakeSemel) -> None:
    seen: list[str] = []
    stripe, once = webhooks.stripe(SECRET), fake.semel()

    def handle(event: Event) -> dict[str, int]:
        seen.append(event.id)
        return {"handled": len(seen)}

    # A later delivery is signed anew, and may say more.
    more = b'{"id":"evt_1","pending_webhooks":1}'
    given = [stripe.run(once, headers(body), body, handle) for body in (BODY, BODY, more)]
    assert [(result.value, result.replayed) for result in given] == [
        ({"handled": 1}, False),
        ({"handled": 1}, True),
        ({"handled": 1}, True),
    ]
    assert fake.state("webhook-stripe", "evt_1") == "completed"
    fake.advance(3 * 86_400)
    assert stripe.run(once, headers(), BODY, handle).replayed, "providers deliver again for days"
    stripe.run(once, headers(), BODY, handle, scope="other")
    assert seen == ["evt_1"] * 2


def test_terms_of_the_client_and_of_the_endpoint_count(fake: FakeSemel) -> None:
    stripe, once = webhooks.stripe(SECRET), fake.semel(terms=Terms(retention=60))
    for wait, replayed in ((0, False), (61, False), (30, True)):
        fake.advance(wait)
        assert stripe.run(once, headers(), BODY, lambda _: None).replayed is replayed
    fake.advance(31)
    stripe.run(once, headers(), BODY, lambda _: None, terms=Terms(retention=600))
    fake.advance(61)
    assert stripe.run(once, headers(), BODY, lambda _: None).replayed


def test_a_refused_webhook_claims_nothing(fake: FakeSemel) -> None:
    stripe, once = webhooks.stripe(SECRET), fake.semel()
    with pytest.raises(WebhookRefused):
        stripe.run(once, headers(secret="other"), BODY, lambda _: pytest.fail("it ran"))
    assert fake.calls == []


class Endpoint:
    """One kind of application, and what it was asked to do."""

    def __init__(self, kind: str, fake: FakeSemel) -> None:
        self.seen: list[str] = []
        self.result: Any = None
        self.error: BaseException | None = None
        retry = RetryPolicy(base=0.001, cap=0.01, total_timeout=0.05)
        stripe = webhooks.stripe(SECRET, max_body=100)
        self.client: Any
        if kind == "wsgi":
            app = stripe.wsgi(fake.semel(retry=retry), self._handle)
            self.client = httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop")
        else:
            aapp = stripe.asgi(fake.async_semel(retry=retry), self._ahandle)
            self.client = httpx.AsyncClient(transport=httpx.ASGITransport(aapp), base_url="http://shop")

    def _handle(self, event: Event) -> Any:
        self.seen.append(event.id)
        if self.error is not None:
            raise self.error
        return self.result

    async def _ahandle(self, event: Event) -> Any:
        await asyncio.sleep(0)
        return self._handle(event)

    async def send(self, body: bytes = BODY, method: str = "POST", signature: str | None = None) -> httpx.Response:
        own = headers(body) | ({} if signature is None else {"Stripe-Signature": signature})
        answer = self.client.request(method, "/", content=body, headers=own)
        found: httpx.Response = await answer if asyncio.iscoroutine(answer) else answer
        return found


@pytest.fixture(params=["asgi", "wsgi"])
def endpoint(request: pytest.FixtureRequest, fake: FakeSemel) -> Endpoint:
    """An endpoint of each kind."""
    return Endpoint(request.param, fake)


async def test_an_endpoint_answers_every_delivery(endpoint: Endpoint) -> None:
    for number, (result, kind, text) in enumerate(
        (
            (None, None, ""),
            ("challenge", "text/plain; charset=utf-8", "challenge"),
            ({"a": 1}, "application/json", None),
        )
    ):
        endpoint.result = result
        body = json.dumps({"id": f"evt_{number}"}).encode()
        for _ in range(2):
            answer = await endpoint.send(body)
            assert (answer.status_code, answer.headers.get("content-type")) == (200, kind)
            assert answer.text == text if text is not None else answer.json() == result
    assert endpoint.seen == ["evt_0", "evt_1", "evt_2"]


async def test_an_endpoint_refuses_what_is_no_webhook(endpoint: Endpoint) -> None:
    assert (await endpoint.send(method="GET")).status_code == 405
    assert (await endpoint.send(b"x" * 101)).status_code == 413
    wrong = await endpoint.send(signature=headers(secret="other")["Stripe-Signature"])
    assert (wrong.status_code, wrong.text) == (401, "the webhook is refused: signature")
    assert (await endpoint.send(signature="?")).status_code == 400
    assert endpoint.seen == []


async def test_a_handler_that_fails_leaves_the_event_to_the_next_delivery(endpoint: Endpoint, fake: FakeSemel) -> None:
    for error in (RuntimeError("no database"), NoEffect("no database")):
        endpoint.error = error
        with pytest.raises(type(error)):
            await endpoint.send()
        assert fake.state("webhook-stripe", "evt_1") == "released"
    endpoint.error = None
    assert (await endpoint.send()).status_code == 200
    assert len(endpoint.seen) == 3


async def test_a_handler_that_fails_for_good_ends_the_deliveries(endpoint: Endpoint) -> None:
    endpoint.error = Final("unknown customer")
    assert [(await endpoint.send()).status_code for _ in range(2)] == [200, 200]
    assert endpoint.seen == ["evt_1"]


GONE = {code: {"code": code, "status": 410} for code in ("idempotency_answer_erased", "idempotency_answer_expired")}


@pytest.mark.parametrize(
    "error",
    [
        Unrecorded("charged"),
        AnswerNotKept(7),
        EffectFailed("declined", replayed=True),
        *(ProblemError(410, GONE[code]) for code in GONE),
    ],
    ids=lambda error: getattr(error, "code", type(error).__name__),
)
async def test_an_error_of_a_call_inside_the_handler_leaves_the_event_to_the_next_delivery(
    endpoint: Endpoint, fake: FakeSemel, error: SemelError
) -> None:
    endpoint.error = error
    with pytest.raises(type(error)) as raised:
        await endpoint.send()
    assert raised.value is error
    assert fake.state("webhook-stripe", "evt_1") == "released"
    endpoint.error = None
    assert (await endpoint.send()).status_code == 200
    assert endpoint.seen == ["evt_1"] * 2


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
@pytest.mark.parametrize("document", GONE.values(), ids=GONE)
async def test_an_event_whose_answer_is_gone_was_handled(kind: str, document: Any) -> None:
    class Forgetful(FakeSemel):
        def __init__(self) -> None:
            super().__init__()
            self.transport = httpx.MockTransport(lambda _: httpx.Response(410, json=document))

    endpoint = Endpoint(kind, Forgetful())
    answer = await endpoint.send()
    assert (answer.status_code, answer.content, endpoint.seen) == (200, b"", [])


async def test_a_delivery_while_the_first_is_handled_is_asked_to_come_again(
    endpoint: Endpoint, fake: FakeSemel
) -> None:
    with fake.semel().operation("webhook-stripe", "evt_1"):
        answer = await endpoint.send()
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_flight")
    assert endpoint.seen == []


def test_a_failure_for_good_is_an_error_where_no_endpoint_answers(fake: FakeSemel) -> None:
    def handle(_: Event) -> None:
        raise Final("unknown customer")

    with pytest.raises(EffectFailed):
        webhooks.stripe(SECRET).run(fake.semel(), headers(), BODY, handle)


async def test_an_asgi_endpoint_is_for_http_alone(fake: FakeSemel) -> None:
    async def handle(_: Event) -> None:
        raise AssertionError

    app = webhooks.stripe(SECRET).asgi(fake.async_semel(), handle)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        raise AssertionError

    with pytest.raises(RuntimeError, match="websocket"):
        await app({"type": "websocket"}, receive, send)
    await app({"type": "http", "method": "POST", "headers": []}, receive, send)


def test_a_wsgi_endpoint_refuses_a_body_that_ends_early(fake: FakeSemel) -> None:
    app = webhooks.stripe(SECRET).wsgi(fake.semel(), lambda _: pytest.fail("it ran"))
    said: list[str] = []
    environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": "20", "wsgi.input": io.BytesIO(b"{}")}
    list(app(environ, lambda status, *_: said.append(status)))
    assert said == ["400 Bad Request"]


async def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_URL", "memory://")
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", SECRET)
    example = importlib.import_module("webhook_app")
    body = b'{"id":"evt_1","type":"checkout.session.completed","data":{"object":{"id":"cs_1"}}}'
    async with httpx.AsyncClient(transport=httpx.ASGITransport(example.app), base_url="http://shop") as client:
        for _ in range(3):
            assert (await client.post("/stripe", content=body, headers=headers(body))).status_code == 200
        assert (await client.post("/stripe", content=body, headers=headers(b"other"))).status_code == 401
    assert example.shipped == ["cs_1"]
    await example.once.aclose()
