"""What requests of one attempt carry to prove who asks, and what happens when a server wants something else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from shared.domain.auth import BasicAuth, BearerAuth, DigestAuth, OAuth2Auth
from shared.http.answer import Answer
from shared.http.digest import DigestSession, find_challenge
from shared.http.request import Request, basic
from shared.http.tokens import Token, TokenCache


class Credentials(Protocol):
    """Credentials that depend on what the server, or another one, says."""

    async def prepare(self) -> None:
        """Get what requests will carry; raises ``HttpError`` when that cannot be had."""
        ...

    def equip(self, request: Request) -> Request:
        """The request with what proves who asks."""
        ...

    async def renew(self, answer: Answer) -> bool:
        """Whether the same request is worth another try after this 401; raises ``HttpError``."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, beside what the check itself holds."""
        ...


def fixed_authorization(auth: BasicAuth | BearerAuth) -> str:
    """The value of the Authorization field that every request carries."""
    if isinstance(auth, BearerAuth):
        return f"Bearer {auth.token}"
    return basic(auth.username, auth.password)


class DigestCredentials:
    """Answers the challenge of the first 401; another one means that the server does not accept the answer."""

    secrets: tuple[str, ...] = ()

    def __init__(self, auth: DigestAuth) -> None:
        self._auth = auth
        self._session: DigestSession | None = None

    async def prepare(self) -> None:
        """Nothing: the server speaks first."""

    def equip(self, request: Request) -> Request:
        if self._session is None:
            return request
        return _with(request, self._session.authorization(request.method, request.url.target))

    async def renew(self, answer: Answer) -> bool:
        challenge = find_challenge(value for name, value in answer.headers if name == "www-authenticate")
        if self._session is not None and not challenge.stale:
            return False
        self._session = DigestSession(challenge, self._auth.username, self._auth.password)
        return True


class TokenCredentials:
    """A token from the cache, or a fresh one. A cached one that is refused is replaced once."""

    def __init__(self, auth: OAuth2Auth, cache: TokenCache, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._auth = auth
        self._cache = cache
        self._fetch = fetch
        self._token = cache.get(auth)
        self._used = {self._token} if self._token else set()
        self._fresh = False

    async def prepare(self) -> None:
        if self._token is not None:
            return
        token = await self._fetch()
        self._cache.put(self._auth, token)
        self._token, self._fresh = token.value, True
        self._used.add(token.value)

    def equip(self, request: Request) -> Request:
        return _with(request, f"Bearer {self._token}")

    async def renew(self, answer: Answer) -> bool:  # noqa: ARG002 a refusal is all that matters
        self._cache.drop(self._auth)
        if self._fresh:
            return False
        self._token = None
        await self.prepare()
        return True

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self._used)


def _with(request: Request, authorization: str) -> Request:
    return replace(request, headers=(*request.headers, ("Authorization", authorization)))
