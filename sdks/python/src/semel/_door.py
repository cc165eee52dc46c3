"""What the middlewares of all frameworks do with a request: which terms it has, and what is claimed for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import _http
from ._claims import NOTHING, Terms, claim_request
from ._credentials import Counted, Credentials, has_credentials
from ._http import Headers
from ._lease import merged
from ._routes import Routes
from .api_types import ClaimRequest
from .aworker import AsyncSemel
from .keys import key_of_header
from .worker import Semel


@dataclass(frozen=True)
class Request:
    """A request, whatever its framework."""

    method: str
    path: str
    """As it was read: routes go by it."""
    sent_path: str
    """As it was sent: an escaped slash is no slash."""
    query: str
    headers: Headers
    body: bytes = b""
    certificate: str | None = None


@dataclass(frozen=True)
class Door:
    """The settings that all middlewares have."""

    routes: Routes
    methods: frozenset[str]
    require_key: bool
    authority: bool
    keep: frozenset[str]
    credentials: Credentials

    @staticmethod
    def of(
        terms: Terms,
        *,
        routes: Mapping[str, Terms] | None,
        methods: Iterable[str],
        require_key: bool,
        authority: bool,
        keep_headers: Iterable[str],
        credential_headers: Iterable[str],
        cookies: Iterable[str],
    ) -> Door:
        """As they are given."""
        return Door(
            Routes(routes or {}, terms),
            frozenset(method.upper() for method in methods),
            require_key,
            authority,
            frozenset(name.lower() for name in keep_headers),
            Credentials.of(credential_headers, cookies),
        )

    def key(self, method: str, headers: Headers) -> str | None:
        """The request's key, or nothing where it passes. `KeyInvalid`, `Refused`."""
        if method.upper() not in self.methods:
            return None
        key = key_of_header(_http.key_lines(headers))
        if key is None and self.require_key:
            raise _http.Refused(_http.problem(400, "idempotency_key_required", _http.KEY_REQUIRED))
        return key

    def claim(
        self, semel: Semel | AsyncSemel, request: Request, key: str, *, scope: str, principal: str | None
    ) -> tuple[ClaimRequest, bool]:
        """What is asked for, and whether nothing says by whom. `KeyInvalid`, `PayloadInvalid`."""
        counted: Counted | None = None
        if not principal:
            counted = self.credentials.counted(request.headers, request.certificate)
        digest = _http.request_fingerprint(
            request.method,
            _http.host_of(request.headers) if self.authority else "",
            request.sent_path,
            request.query,
            request.headers,
            request.body,
            credentials=counted,
        )
        owned = _http.owned_key(principal, key)
        terms = self.routes.terms(request.method, request.path)
        claim = claim_request(scope, owned, NOTHING, terms, tenant=semel.tenant, actor=semel.actor, fingerprint=digest)
        return claim, counted is not None and not has_credentials(counted)


def merged_terms(terms: Terms | None, semel: Semel | AsyncSemel) -> Terms:
    """The middleware's own, and for what they leave out, those of the client."""
    return merged(terms, semel.terms)
