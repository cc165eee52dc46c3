"""What tells callers apart where nobody says who they are; `spec/vectors/credentials.json` is for all languages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

Headers = list[tuple[str, str]]

NAMES = (
    "authorization",
    "x-api-key",
    "proxy-authorization",
    "api-key",
    "apikey",
    "x-apikey",
    "x-auth-token",
    "x-access-token",
    "x-session-token",
    "private-token",
    "job-token",
    "ocp-apim-subscription-key",
    "x-functions-key",
    "x-goog-api-key",
    "x-goog-iap-jwt-assertion",
    "x-amz-security-token",
    "x-amzn-oidc-data",
    "x-amzn-oidc-accesstoken",
    "x-amzn-oidc-identity",
    "x-ms-client-principal",
    "cf-access-jwt-assertion",
    "cf-access-client-id",
    "cf-access-client-secret",
    "x-auth-request-user",
    "x-auth-request-email",
    "x-auth-request-access-token",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-preferred-username",
    "x-forwarded-access-token",
    "x-remote-user",
    "remote-user",
    "client-cert",
    "x-forwarded-client-cert",
    "x-client-cert",
    "x-ssl-client-cert",
)

ALWAYS = 2
"""So many of them count also where they are absent."""

CERTIFICATE = ":client-certificate"
"""The name under which a certificate counts. No header has it."""

_SIGN_IN = frozenset(
    {
        "login",
        "log-in",
        "log_in",
        "logon",
        "signin",
        "sign-in",
        "sign_in",
        "auth",
        "authorize",
        "authenticate",
        "oauth",
        "oauth2",
        "oidc",
        "openid-connect",
        "sso",
        "saml",
        "saml2",
    }
)

Counted = list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Credentials:
    """What counts: `headers` besides the usual ones; of the cookies those that are named, else all of them."""

    headers: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()

    @classmethod
    def of(cls, headers: Iterable[str], cookies: Iterable[str]) -> Credentials:
        """Names in lower case, those of headers."""
        return cls(tuple(name.lower() for name in headers), tuple(cookies))

    def counted(self, headers: Headers, certificate: str | None = None) -> Counted:
        """What counts of a request, in an order that is not the request's."""
        lines: dict[str, list[str]] = {}
        for name, value in headers:
            lines.setdefault(name.lower(), []).append(value)
        names = NAMES + tuple(name for name in self.headers if name not in NAMES)
        counted = [(name, lines.get(name, [])) for at, name in enumerate(names) if at < ALWAYS or name in lines]
        cookies = self._cookies([line for line in lines.get("cookie", []) if line])
        if cookies:
            counted.append(("cookie", cookies))
        if certificate:
            counted.append((CERTIFICATE, [certificate]))
        return counted

    def _cookies(self, lines: list[str]) -> list[str]:
        if not lines or not self.cookies:
            return ["; ".join(lines)] if lines else []
        pairs = [pair.strip() for line in lines for pair in line.split(";")]
        return [pair for name in self.cookies for pair in pairs if pair.startswith(name + "=")]


def has_credentials(counted: Counted) -> bool:
    """Whether any of these is there."""
    return any(values for _, values in counted)


def asks_to_sign_in(status: int, location: str | None) -> bool:
    """Whether an answer says that credentials are missing. A 303 says that something was done."""
    if status in (401, 403, 407):
        return True
    if status not in (301, 302, 307, 308) or location is None:
        return False
    segments = re.split(r"[?#]", location, maxsplit=1)[0].split("/")
    return any(re.split(r"[.;]", segment, maxsplit=1)[0].lower() in _SIGN_IN for segment in segments)
