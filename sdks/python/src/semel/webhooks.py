"""Webhooks: the provider's signature is checked, and each of its events is handled once.

stripe = semel.webhooks.stripe(os.environ["STRIPE_WEBHOOK_SECRET"])
app = FastAPI(routes=[Route("/stripe", stripe.asgi(once, handle))])
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._claims import Terms
from ._lease import Result, merged
from ._webhook_headers import HeaderLines, Lines, WebhookRefused, after, member, seconds_in
from .aworker import AsyncSemel
from .errors import KeyInvalid
from .keys import check_key
from .worker import Semel

if TYPE_CHECKING:
    from .asgi import App as AsgiApp
    from .wsgi import App as WsgiApp

MAX_BODY_BYTES = 1024 * 1024
"""The largest body that is read, unless the verifier says otherwise."""

MAX_SIGNATURES = 16
"""The most signatures in one header."""

TOLERANCE = 300.0
"""Seconds by which a signature's time may be off."""

RETENTION = Terms(retention=7 * 86_400)
"""Providers deliver again for days."""

Secrets = str | bytes | Sequence[str | bytes]


@dataclass(frozen=True)
class Event:
    """A webhook whose signature is right."""

    provider: str
    id: str
    """The same on each delivery."""
    body: bytes = field(repr=False)
    """As it was signed."""
    headers: dict[str, str] = field(repr=False)
    """By their names in small letters. The signature doesn't cover them, except for those that are part of it."""

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    @property
    def key(self) -> str:
        """Under which it is handled once."""
        try:
            return check_key(self.id)
        except KeyInvalid:
            return "id-" + hashlib.sha256(self.id.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class _Signed:
    """What a request says of its signature."""

    before: bytes
    """What is signed in front of the body."""
    signatures: list[str]
    seconds: str | None = None


class Verifier(ABC):
    """How a provider signs. All secrets count, so that one can be replaced by another: give the new and the old one."""

    provider = ""

    def __init__(
        self,
        secrets: Secrets,
        *,
        tolerance: float = TOLERANCE,
        max_body: int = MAX_BODY_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        given = [secrets] if isinstance(secrets, (str, bytes)) else list(secrets)
        self._keys = [self._key_of(secret) for secret in given]
        if not self._keys or not all(self._keys):
            raise ValueError("a webhook needs a secret that isn't empty")
        self._tolerance, self.max_body, self._clock = tolerance, max_body, clock

    def verify(self, headers: HeaderLines, body: bytes) -> Event:
        """The event, or `WebhookRefused`. `body` is the request's body as it came, before anything has read it."""
        if len(body) > self.max_body:
            raise WebhookRefused("too_large")
        lines = Lines(headers)
        signed = self._read(lines)
        if len(signed.signatures) > MAX_SIGNATURES or not signed.signatures:
            raise WebhookRefused("malformed")
        if not self._is_signed(signed, body):
            raise WebhookRefused("signature")
        if signed.seconds is not None and abs(self._clock() - int(signed.seconds)) > self._tolerance:
            raise WebhookRefused("expired")
        found = self._id(lines, body)
        if not found:
            raise WebhookRefused("no_id")
        return Event(self.provider, found, body, lines.all())

    def run(
        self,
        once: Semel,
        headers: HeaderLines,
        body: bytes,
        handle: Callable[[Event], Any],
        *,
        scope: str | None = None,
        terms: Terms | None = None,
    ) -> Result[Any]:
        """Verifies it, and handles each event once: a repeated delivery gets the first result.

        A handler that raises leaves the event to the next delivery, unless `terms` say otherwise.
        """
        event = self.verify(headers, body)
        both = merged(terms, merged(once.terms, RETENTION))
        return once.run(scope or self._scope(), event.key, lambda _: handle(event), terms=both)

    async def arun(
        self,
        once: AsyncSemel,
        headers: HeaderLines,
        body: bytes,
        handle: Callable[[Event], Awaitable[Any]],
        *,
        scope: str | None = None,
        terms: Terms | None = None,
    ) -> Result[Any]:
        """As `run`, for coroutine functions."""
        event = self.verify(headers, body)
        both = merged(terms, merged(once.terms, RETENTION))
        return await once.run(scope or self._scope(), event.key, lambda _: handle(event), terms=both)

    def asgi(
        self,
        once: AsyncSemel,
        handle: Callable[[Event], Awaitable[Any]],
        *,
        scope: str | None = None,
        terms: Terms | None = None,
    ) -> AsgiApp:
        """An ASGI application for one endpoint: `Route("/stripe", stripe.asgi(once, handle))` in Starlette, FastAPI."""
        from ._webhook_apps import AsgiEndpoint  # noqa: PLC0415

        async def answer(headers: HeaderLines, body: bytes, effect: Callable[[Event], Awaitable[Any]]) -> Any:
            return (await self.arun(once, headers, body, effect, scope=scope, terms=terms)).value

        return AsgiEndpoint(answer, handle, self.max_body)

    def wsgi(
        self, once: Semel, handle: Callable[[Event], Any], *, scope: str | None = None, terms: Terms | None = None
    ) -> WsgiApp:
        """A WSGI application for one endpoint, for werkzeug's `DispatcherMiddleware` and others."""
        from ._webhook_apps import wsgi_app  # noqa: PLC0415

        def answer(headers: HeaderLines, body: bytes, effect: Callable[[Event], Any]) -> Any:
            return self.run(once, headers, body, effect, scope=scope, terms=terms).value

        return wsgi_app(answer, handle, self.max_body)

    def _scope(self) -> str:
        return f"webhook-{self.provider}"

    def _is_signed(self, signed: _Signed, body: bytes) -> bool:
        """Compares all signatures with those of all secrets, in a time that tells nothing of them."""
        found = False
        for key in self._keys:
            own = self._text_of(hmac.digest(key, signed.before + body, "sha256")).encode()
            for signature in signed.signatures:
                found |= hmac.compare_digest(own, signature.encode("utf-8", "surrogatepass"))
        return found

    def _key_of(self, secret: str | bytes) -> bytes:
        return secret.encode() if isinstance(secret, str) else secret

    def _text_of(self, digest: bytes) -> str:
        return digest.hex()

    @abstractmethod
    def _read(self, headers: Lines) -> _Signed:
        """What the headers say."""

    @abstractmethod
    def _id(self, headers: Lines, body: bytes) -> str | None:
        """The id of the event."""


class Stripe(Verifier):
    """`Stripe-Signature`; the event's `id`."""

    provider = "stripe"

    def _read(self, headers: Lines) -> _Signed:
        items = [item.strip().partition("=") for item in headers.one("Stripe-Signature").split(",")]
        times = [value for name, _, value in items if name == "t"]
        if len(times) != 1:
            raise WebhookRefused("malformed")
        seconds = seconds_in(times[0])
        return _Signed(f"{seconds}.".encode(), [value for name, _, value in items if name == "v1"], seconds)

    def _id(self, _: Lines, body: bytes) -> str | None:
        return member(body, "id")


class GitHub(Verifier):
    """`X-Hub-Signature-256`; `X-GitHub-Delivery`, which isn't signed."""

    provider = "github"

    def _read(self, headers: Lines) -> _Signed:
        return _Signed(b"", [after("sha256=", headers.one("X-Hub-Signature-256"))])

    def _id(self, headers: Lines, _: bytes) -> str | None:
        return headers.maybe("X-GitHub-Delivery")


class Shopify(Verifier):
    """`X-Shopify-Hmac-SHA256`; `X-Shopify-Webhook-Id`, which isn't signed."""

    provider = "shopify"

    def _read(self, headers: Lines) -> _Signed:
        return _Signed(b"", [headers.one("X-Shopify-Hmac-SHA256")])

    def _text_of(self, digest: bytes) -> str:
        return base64.b64encode(digest).decode()

    def _id(self, headers: Lines, _: bytes) -> str | None:
        return headers.maybe("X-Shopify-Webhook-Id")


class Slack(Verifier):
    """`X-Slack-Signature`; the event's `event_id`, and a digest of the body for what has none, such as commands."""

    provider = "slack"

    def _read(self, headers: Lines) -> _Signed:
        seconds = headers.seconds("X-Slack-Request-Timestamp")
        return _Signed(f"v0:{seconds}:".encode(), [after("v0=", headers.one("X-Slack-Signature"))], seconds)

    def _id(self, _: Lines, body: bytes) -> str | None:
        return member(body, "event_id") or "body-" + hashlib.sha256(body).hexdigest()


class StandardWebhooks(Verifier):
    """`webhook-signature` and `webhook-id`, as many providers send them."""

    provider = "standard"

    def _key_of(self, secret: str | bytes) -> bytes:
        if isinstance(secret, bytes):
            return secret
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            raise ValueError("the secret is no base64") from None

    def _read(self, headers: Lines) -> _Signed:
        name, seconds = headers.one("webhook-id"), headers.seconds("webhook-timestamp")
        if not name:
            raise WebhookRefused("malformed")
        items = [item.partition(",") for item in headers.one("webhook-signature").split(" ")]
        signatures = [value for version, _, value in items if version == "v1"]
        return _Signed(f"{name}.{seconds}.".encode("utf-8", "surrogatepass"), signatures, seconds)

    def _text_of(self, digest: bytes) -> str:
        return base64.b64encode(digest).decode()

    def _id(self, headers: Lines, _: bytes) -> str | None:
        return headers.one("webhook-id")


stripe, github, shopify, slack, standard = Stripe, GitHub, Shopify, Slack, StandardWebhooks
"""`semel.webhooks.stripe(secret)` and so on."""

__all__ = ["Event", "Verifier", "WebhookRefused", "github", "shopify", "slack", "standard", "stripe"]
