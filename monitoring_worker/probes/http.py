"""The probe of kind ``http``: requests along redirects, until an answer that leads nowhere else."""

from __future__ import annotations

import asyncio

from monitoring_worker.probes.deadline import timed_out
from shared.domain.checks import HttpCheck
from shared.domain.clock import Clock
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation import HttpObservation
from shared.domain.result import Redirect
from shared.domain.url import parse_url
from shared.http.cookies import CookieJar
from shared.http.door import Door
from shared.http.errors import HttpError, TargetError
from shared.http.exchange import Exchange, Manner
from shared.http.redirect import redirected
from shared.http.request import Request, authorization
from shared.http.response import ResponseReader
from shared.http.stopwatch import Stopwatch

_BODY_SOURCES = frozenset({"body", "json"})


class HttpProbe:
    """Makes observations; keeps nothing from one to the next."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._door = door
        self._clock = clock

    async def observe(self, spec: HttpCheck, timeout_seconds: float) -> HttpObservation:
        """One attempt, over within the timeout."""
        journey = _Journey(spec, self._door, self._clock)
        error: CheckError | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                await journey.travel()
        except HttpError as failure:
            error = failure.error
        except TimeoutError:
            error = timed_out(journey.stopwatch.phase, timeout_seconds)
        return journey.observation(error)


class _Journey:
    """One attempt: its cookies, its redirects and the last exchange."""

    def __init__(self, spec: HttpCheck, door: Door, clock: Clock) -> None:
        self.stopwatch = Stopwatch(clock.monotonic)
        self._spec = spec
        self._door = door
        self._clock = clock
        self._redirects: list[Redirect] = []
        self._manner = Manner(
            family=spec.ip_family,
            verify=spec.tls.verify,
            wants_body=any(assertion.source in _BODY_SOURCES for assertion in spec.assertions),
            follows=spec.follow_redirects,
        )
        self._exchange: Exchange | None = None
        self._answer: ResponseReader | None = None

    async def travel(self) -> None:
        """Ask and follow until an answer leads nowhere else; raises ``HttpError``."""
        request = _first_request(self._spec)
        answer = await self._ask(request)
        if answer.location:
            answer = await self._follow(request, answer)
        self._answer = answer

    async def _follow(self, request: Request, answer: ResponseReader) -> ResponseReader:
        jar = CookieJar(self._clock.now_ms())
        visited = {_identity(request)}
        while answer.location:
            jar.store_all(request.url, answer.headers)
            request = jar.equip(redirected(request, answer.status_code, answer.location))
            self._redirects.append(Redirect(answer.status_code, request.url.redacted()))
            if len(self._redirects) > self._spec.max_redirects:
                raise TargetError(ErrorKind.REDIRECT_LOOP, f"more than {self._spec.max_redirects} redirects")
            if _identity(request) in visited:
                raise TargetError(ErrorKind.REDIRECT_LOOP, f"redirected in a circle, to {request.url.redacted()}")
            visited.add(_identity(request))
            answer = await self._ask(request)
        return answer

    async def _ask(self, request: Request) -> ResponseReader:
        self._exchange = Exchange(request, self._manner, self._door, self.stopwatch)
        return await self._exchange.run()

    def observation(self, error: CheckError | None) -> HttpObservation:
        exchange, reader = self._exchange, self._exchange.reader if self._exchange else None
        return HttpObservation(
            timings=self.stopwatch.timings(),
            status_code=reader.status_code or None if reader else None,
            version=reader.version or None if reader else None,
            headers=tuple(self._answer.headers) if self._answer else (),
            body=self._answer.body if self._answer else b"",
            body_bytes=reader.body_bytes if reader else 0,
            redirects=tuple(self._redirects),
            final_url=exchange.request.url.redacted() if exchange else None,
            remote_address=exchange.remote_address if exchange else None,
            tls=exchange.peer if exchange else None,
            error=error,
        )


def _first_request(spec: HttpCheck) -> Request:
    headers = tuple(spec.headers.items())
    if spec.auth:
        headers = (*headers, ("Authorization", authorization(spec.auth)))
    return Request(spec.method, parse_url(spec.url), headers, None if spec.body is None else spec.body.encode())


def _identity(request: Request) -> tuple[str, str, str | None]:
    """Two requests with the same identity get the same answer: that is what makes a circle."""
    return request.method, str(request.url), request.cookies
