"""What a client sends: the options of a request, its key, where it goes. Without I/O."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import httpx2 as httpx

from ._send import Auth, Build
from .keys import check_key, new_key
from .outbox import StoredRequest

HEADER = "Idempotency-Key"

WITHOUT_KEY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing: they are sent again too, and have a key only if they are given one."""


class Options(TypedDict, total=False):
    """What a request may carry besides its method and URL. Bodies are encoded once, for all attempts."""

    json: Any
    content: bytes | str
    data: Mapping[str, Any]
    """A form."""
    files: Any
    """Files of a form, as httpx takes them."""
    params: Mapping[str, Any]
    """Added to the URL."""
    headers: Mapping[str, str]
    content_type: str
    auth: Auth
    """Credentials for this request, in place of those of the connections."""
    timeout: float
    """Seconds for each attempt, in place of those of the policy."""


@dataclass(frozen=True)
class More:
    """What a request has that an outbox doesn't keep."""

    headers: Mapping[str, str] = field(default_factory=dict)
    auth: Auth | None = None
    timeout: float | None = None

    @staticmethod
    def of(options: Options) -> More:
        """Of the options of a call."""
        return More(options.get("headers", {}), options.get("auth"), options.get("timeout"))


_BODIES = ("json", "content", "data")


def _body(options: Options) -> tuple[bytes, str | None]:
    given = [name for name in _BODIES if name in options]
    if len(given) > 1 or ("files" in options and given not in ([], ["data"])):
        raise ValueError("one body only: json, content, or data with files")
    if "json" in options:
        body = json_module.dumps(options["json"], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return body.encode(), options.get("content_type", "application/json")
    if "data" in options or "files" in options:
        form = httpx.Request("POST", "http://form", data=options.get("data"), files=options.get("files"))
        return form.read(), options.get("content_type", form.headers.get("content-type"))
    content = options.get("content", b"")
    return (content.encode() if isinstance(content, str) else content), options.get("content_type")


def stored(method: str, url: str, options: Options) -> StoredRequest:
    """The request, as an outbox keeps it."""
    body, content_type = _body(options)
    if "params" in options:
        url = str(httpx.URL(url).copy_merge_params(options["params"]))
    return StoredRequest(method.upper(), url, content_type, body)


def joined_url(base: httpx.URL, url: str) -> httpx.URL:
    """Under the base, as httpx does it."""
    given = httpx.URL(url)
    if given.is_absolute_url or base.is_relative_url:
        return given
    return base.copy_with(raw_path=base.raw_path + given.raw_path.lstrip(b"/"))


def kept(base: httpx.URL, request: StoredRequest) -> StoredRequest:
    """As it is kept: whoever finishes it may have another base, or none. Credentials in the base stay out of it."""
    if httpx.URL(request.url).is_absolute_url or base.is_relative_url:
        return request
    return replace(request, url=str(joined_url(base.copy_with(userinfo=b""), request.url)))


def sent_to(base: httpx.URL, url: str) -> httpx.URL:
    """Where a request goes: with the base's own credentials, which are never kept, where it goes to the base."""
    to = joined_url(base, url)
    same = (to.scheme, to.host, to.port) == (base.scheme, base.host, base.port)
    return to.copy_with(userinfo=base.userinfo) if same and base.userinfo and not to.userinfo else to


def base_of(base_url: str, http: httpx.Client | httpx.AsyncClient) -> httpx.URL:
    """The base that was given, else that of the connections. Its path ends in a slash, as that of httpx does."""
    base = httpx.URL(base_url) if base_url else http.base_url
    path, mark, query = base.raw_path.partition(b"?")
    return base if path.endswith(b"/") else base.copy_with(raw_path=path + b"/" + mark + query)


def key_for(method: str, key: str | None) -> str:
    """The key that was given, else a new one; none for a method that changes nothing."""
    if key is None:
        return "" if method.upper() in WITHOUT_KEY else new_key()
    return check_key(key)


def build_for(
    http: httpx.Client | httpx.AsyncClient,
    base: httpx.URL,
    key: str,
    request: StoredRequest,
    own: Mapping[str, str],
    more: More,
) -> Build:
    """Makes the request of each attempt."""
    headers = {**own, **more.headers, **({HEADER: key} if key else {})}
    if request.content_type is not None:
        headers["Content-Type"] = request.content_type
    url = sent_to(base, request.url)
    return lambda _attempt: http.build_request(request.method, url, content=request.body, headers=headers)
