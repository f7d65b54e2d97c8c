"""The probe of kind ``http``: requests along redirects, until an answer that leads nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from monitoring_worker.probes.deadline import timed_out
from shared.domain.auth import BasicAuth, BearerAuth, DigestAuth, OAuth2Auth
from shared.domain.checks_http import HttpRequest
from shared.domain.clock import Clock
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation import HttpObservation
from shared.domain.redaction import forms_of
from shared.domain.result import Redirect
from shared.domain.url import parse_url
from shared.http.answer import Answer
from shared.http.cookies import CookieJar
from shared.http.credentials import Credentials, DigestCredentials, TokenCredentials, fixed_authorization
from shared.http.door import Door
from shared.http.errors import HttpError, TargetError
from shared.http.exchange import Exchange, Manner
from shared.http.name_servers import name_servers
from shared.http.redirect import redirected
from shared.http.request import Request
from shared.http.stopwatch import Stopwatch
from shared.http.tokens import Token, TokenCache, fetch_token
from shared.http.transport import guarded_client

T = TypeVar("T")


class HttpProbe:
    """Makes observations; from one to the next it keeps only access tokens that are still good."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._door = door
        self._clock = clock
        self._tokens = TokenCache(clock.monotonic)

    async def observe(
        self, spec: HttpRequest, timeout_seconds: float, jar: CookieJar | None = None
    ) -> HttpObservation:
        """One attempt, over within the timeout. With a jar its cookies are sent, and those of the answers kept."""
        journey = _Journey(spec, self._door, self._clock, self._tokens, jar)
        error: CheckError | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                await journey.travel()
        except HttpError as failure:
            error = failure.error
        except TimeoutError:
            error = journey.timed_out(timeout_seconds)
        return journey.observation(error)


class _Journey:
    """One attempt: its credentials, its cookies, its redirects and the last exchange."""

    def __init__(
        self, spec: HttpRequest, door: Door, clock: Clock, tokens: TokenCache, jar: CookieJar | None
    ) -> None:
        self._spec = spec
        self._door = _door(spec, door)
        self._clock = clock
        self._manner = _manner(spec)
        self._credentials = self._asked_for(tokens)
        self._has_left = False
        self._jar = jar
        self._preparing = False
        self._stopwatch = Stopwatch(clock.monotonic)
        self._redirects: list[Redirect] = []
        self._exchange: Exchange | None = None

    async def travel(self) -> None:
        """Ask and follow until an answer leads nowhere else; raises ``HttpError``."""
        if self._credentials:
            await self._prepared(self._credentials.prepare())
            # The time of a token is not the time of the target.
            self._stopwatch = Stopwatch(self._clock.monotonic)
        request = _first_request(self._spec)
        if self._jar is not None:
            request = self._jar.equip(request)
        answer = await self._ask(request)
        if answer.location:
            await self._follow(request, answer)

    async def _follow(self, request: Request, answer: Answer) -> None:
        if self._jar is None:  # most checks never need one
            self._jar = CookieJar(self._clock.now_ms())
            self._jar.store_all(request.url, answer.headers)
        visited = {_identity(request)}
        while answer.location:
            origin = request.url.origin
            request = self._jar.equip(redirected(request, answer.status_code, answer.location))
            if request.url.origin != origin:
                self._has_left = True  # for good: credentials do not come back with a later hop either
            self._redirects.append(Redirect(answer.status_code, request.url.redacted()))
            if len(self._redirects) > self._spec.max_redirects:
                raise TargetError(ErrorKind.REDIRECT_LOOP, f"more than {self._spec.max_redirects} redirects")
            if _identity(request) in visited:
                raise TargetError(ErrorKind.REDIRECT_LOOP, f"redirected in a circle, to {request.url.redacted()}")
            visited.add(_identity(request))
            answer = await self._ask(request)

    async def _ask(self, request: Request) -> Answer:
        answer = await self._answer(request)
        if self._jar is not None:
            self._jar.store_all(request.url, answer.headers)
        return answer

    async def _answer(self, request: Request) -> Answer:
        credentials = self._credentials
        if credentials is None or self._has_left:
            return await self._send(request)
        answer = await self._send(credentials.equip(request))
        if answer.status_code == 401 and await self._prepared(credentials.renew(answer)):
            answer = await self._send(credentials.equip(request))
        return answer

    async def _prepared(self, step: Awaitable[T]) -> T:
        self._preparing = True  # and stays, should the deadline pass meanwhile
        result = await step
        self._preparing = False
        return result

    def _send(self, request: Request) -> Awaitable[Answer]:
        self._exchange = Exchange(request, self._manner, self._door, self._stopwatch)
        return self._exchange.run()

    def _asked_for(self, tokens: TokenCache) -> Credentials | None:
        auth = self._spec.auth
        if auth is None:
            return None  # asking for the class of nothing is slow, and this is every check
        if isinstance(auth, DigestAuth):
            return DigestCredentials(auth)
        if isinstance(auth, OAuth2Auth):
            return TokenCredentials(auth, tokens, lambda: self._fetch_token(auth))
        return None

    async def _fetch_token(self, auth: OAuth2Auth) -> Token:
        manner = Manner(self._manner.family, self._manner.verify, follows=False, proxy=self._manner.proxy)
        async with guarded_client(self._door, manner) as client:
            return await fetch_token(auth, client)

    def timed_out(self, timeout_seconds: float) -> CheckError:
        """The error of an attempt whose time ran out."""
        if self._preparing:
            return CheckError(ErrorKind.AUTH_FAILED, f"no access token was to be had within {timeout_seconds:g} s")
        return timed_out(self._stopwatch.phase, timeout_seconds)

    def observation(self, error: CheckError | None) -> HttpObservation:
        """What has been seen by now."""
        exchange, reader = self._exchange, self._exchange.reader if self._exchange else None
        return HttpObservation(
            timings=self._stopwatch.timings(),
            status_code=reader.status_code or None if reader else None,
            version=reader.version or None if reader else None,
            headers=tuple(reader.headers) if reader else (),
            body=reader.body if reader else b"",
            body_bytes=reader.body_bytes if reader else 0,
            redirects=tuple(self._redirects),
            final_url=exchange.request.url.redacted() if exchange else None,
            remote_address=exchange.remote_address if exchange else None,
            tls=exchange.peer if exchange else None,
            error=error,
            excerpt=reader.excerpt() if reader and not reader.body else b"",
            addresses=tuple(exchange.tried.items()) if exchange else (),
            secrets=forms_of(self._credentials.secrets) if self._credentials else (),
        )


def _door(spec: HttpRequest, door: Door) -> Door:
    if not spec.resolver:
        return door
    return replace(door, resolver=name_servers(spec.resolver, door.policy, door.monotonic))


def _manner(spec: HttpRequest) -> Manner:
    client = spec.tls.client_certificate
    return Manner(
        family=spec.ip_family,
        verify=spec.tls.verify,
        wants_body=spec.wants_body,
        follows=spec.follow_redirects,
        version=spec.http_version,
        proxy=spec.proxy,
        newest_tls_only=spec.tls.min_version == "1.3",
        client=f"{client.certificate}\n{client.key}\n" if client else None,
    )


def _first_request(spec: HttpRequest) -> Request:
    headers = tuple(spec.headers.items())
    body: bytes | None
    if spec.body is None or isinstance(spec.body, str):
        body = None if spec.body is None else spec.body.encode()
    else:
        content_type, body = spec.body.encode()
        if not any(name.lower() == "content-type" for name, _ in headers):
            headers = (*headers, ("Content-Type", content_type))
    if spec.auth is not None and isinstance(spec.auth, BasicAuth | BearerAuth):
        headers = (*headers, ("Authorization", fixed_authorization(spec.auth)))
    return Request(spec.method, parse_url(spec.url), headers, body)


def _identity(request: Request) -> tuple[str, str, str | None]:
    """Two requests with the same identity get the same answer: that is what makes a circle."""
    return request.method, str(request.url), request.cookies
