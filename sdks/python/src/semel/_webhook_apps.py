"""Endpoints for webhooks: ASGI and WSGI applications of one address."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from . import _http
from ._effect import Effect
from ._http import Plain
from ._webhook_headers import HeaderLines, WebhookRefused
from ._wsgi_answers import StartResponse
from .asgi import Receive, Scope, Send, read_body, send_answer
from .errors import EffectFailed, SemelError, Unrecorded, answer_is_gone
from .wsgi import App as WsgiApp
from .wsgi import Environ, answered, body_of, headers_of

_TEXT = "text/plain; charset=utf-8"
_NO_OTHERS = Plain(405, [("Content-Type", _TEXT), ("Allow", "POST")], b"a webhook is a POST")


class AsgiEndpoint:
    """An ASGI application. Starlette takes functions for handlers of its own, so it is none."""

    def __init__(
        self,
        answer: Callable[[HeaderLines, bytes, Callable[[Any], Awaitable[Any]]], Awaitable[Any]],
        handle: Callable[[Any], Awaitable[Any]],
        max_body: int,
    ) -> None:
        self._answer, self._handle, self._max_body = answer, handle, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise RuntimeError(f"a webhook is no {scope['type']}")
        if scope["method"] != "POST":
            await send_answer(send, _NO_OTHERS)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        body = await read_body(receive, self._max_body)
        if body is None:
            return
        effect = Effect(self._handle)
        try:
            plain = _of_result(await self._answer(headers, body, effect.arun))
        except SemelError as error:
            if effect.raised(error):
                raise
            plain = _of_error(error)
        await send_answer(send, plain, close=len(body) > self._max_body)


def wsgi_app(
    answer: Callable[[HeaderLines, bytes, Callable[[Any], Any]], Any], handle: Callable[[Any], Any], max_body: int
) -> WsgiApp:
    """For one endpoint."""

    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            return answered(start_response, _NO_OTHERS)
        effect = Effect(handle)
        try:
            body = body_of(environ, max_body)
            plain = _of_result(answer(headers_of(environ), body, effect))
        except SemelError as error:
            if effect.raised(error):
                raise
            plain = _of_error(error)
        return answered(start_response, plain)

    return app


def _of_result(value: Any) -> Plain:
    if value is None:
        return Plain(200, [], b"")
    if isinstance(value, str):
        return Plain(200, [("Content-Type", _TEXT)], value.encode())
    return Plain(200, [("Content-Type", "application/json")], json.dumps(value).encode())


def _of_error(error: SemelError) -> Plain:
    """What is answered where the handler didn't raise: what isn't 2xx is delivered again."""
    if isinstance(error, WebhookRefused):
        return Plain(error.status, [("Content-Type", _TEXT)], str(error).encode())
    if isinstance(error, (EffectFailed, Unrecorded)) or answer_is_gone(error):
        # It was handled, or no further delivery would change that it can't be.
        return _of_result(None)
    return _http.of_error(error)
