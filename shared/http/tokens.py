"""Access tokens by client credentials (RFC 6749 section 4.4), kept until they expire."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import httpx

from shared.domain.auth import OAuth2Auth
from shared.domain.comparison import bounded
from shared.domain.errors import ErrorKind
from shared.http.errors import BlockedError, OverloadedError, TargetError
from shared.http.request import basic

MAX_TOKENS = 1000
DEFAULT_LIFETIME = 300.0
"""Seconds a token is used whose server does not say how long it lasts."""

MARGIN = 30.0
"""Seconds before its end from which on a token is not used any more; at most a tenth of its life."""

Key = tuple[str, str, str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Token:
    """What goes behind ``Bearer``, and for how many seconds it is good."""

    value: str
    lifetime: float


class TokenCache:
    """The tokens of one process: a bounded number, the least recently used one goes first."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._tokens: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def get(self, auth: OAuth2Auth) -> str | None:
        """A token that is good for now."""
        token, until = self._tokens.get(_key(auth), (None, 0.0))
        if token is None or until <= self._monotonic():
            return None
        self._tokens.move_to_end(_key(auth))
        return token

    def put(self, auth: OAuth2Auth, token: Token) -> None:
        usable = token.lifetime - min(MARGIN, token.lifetime / 10)
        self._tokens[_key(auth)] = token.value, self._monotonic() + usable
        self._tokens.move_to_end(_key(auth))
        if len(self._tokens) > MAX_TOKENS:
            self._tokens.popitem(last=False)

    def drop(self, auth: OAuth2Auth) -> None:
        """Forget a token that a server refused."""
        self._tokens.pop(_key(auth), None)


def _key(auth: OAuth2Auth) -> Key:
    secret = hashlib.sha256(auth.client_secret.encode()).hexdigest()
    return auth.token_url, auth.client_id, secret, auth.scope, auth.audience


async def fetch_token(auth: OAuth2Auth, client: httpx.AsyncClient) -> Token:
    """Ask for a token; raises ``TargetError`` (auth_failed) with the reason; what is not about it goes through."""
    form = {"grant_type": "client_credentials", "scope": auth.scope, "audience": auth.audience}
    headers = {"Accept": "application/json"}
    if auth.credentials_in == "body":
        form |= {"client_id": auth.client_id, "client_secret": auth.client_secret}
    else:
        headers["Authorization"] = basic(quote_plus(auth.client_id), quote_plus(auth.client_secret))
    data = {name: value for name, value in form.items() if value is not None}
    try:
        response = await client.post(auth.token_url, data=data, headers=headers)
    except httpx.TransportError as error:
        if isinstance(error.__cause__, BlockedError | OverloadedError):
            raise error.__cause__ from None
        raise _failed(str(error)) from None
    return _read(response)


def _read(response: httpx.Response) -> Token:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _failed(f"status {response.status_code}, and the answer is no JSON object")
    token = document.get("access_token")
    if response.status_code != 200 or token is None:
        raise _failed(f"status {response.status_code}, {_reason(document)}")
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _failed("the token cannot be sent in a header")
    if str(document.get("token_type", "Bearer")).lower() != "bearer":
        raise _failed(f"tokens of type {bounded(str(document['token_type']), 40)!r} are not supported, only Bearer")
    return Token(token, _lifetime(document.get("expires_in")))


def _reason(document: dict[str, Any]) -> str:
    """The server's own words (RFC 6749 section 5.2)."""
    words = [document.get(name) for name in ("error", "error_description")]
    return bounded(": ".join(word for word in words if isinstance(word, str)), 200) or "without a token"


def _lifetime(expires_in: object) -> float:
    try:
        seconds = float(expires_in)  # type: ignore[arg-type]  # some servers send it as text; whatever it is, it is tried
    except (TypeError, ValueError, OverflowError):
        return DEFAULT_LIFETIME
    return seconds if 0 < seconds < float("inf") else DEFAULT_LIFETIME


def _failed(reason: str) -> TargetError:
    return TargetError(ErrorKind.AUTH_FAILED, f"no access token was to be had: {reason}")
