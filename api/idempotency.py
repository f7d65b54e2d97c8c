"""``Idempotency-Key`` on POST: a request that is repeated is answered again, and done once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Header, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.context import Context, ContextDep
from api.responses import JSON
from shared.services.api_keys import Principal
from shared.services.idempotency import Answer, Claim

REPLAYED = "Idempotency-Replayed"
_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text you choose, once per request. A repetition within a day gets the first answer.",
    ),
]


class Idempotency:
    """One POST with its key, if it has one."""

    def __init__(self, context: Context, key: str | None, request_hash: bytes) -> None:
        self._context, self._key, self._request_hash = context, key, request_hash

    async def once(self, principal: Principal, work: Callable[[AsyncSession], Awaitable[Answer]]) -> Response:
        """Run ``work`` and keep its answer, all in one transaction of the tenant."""
        claim = self._claim(principal)
        async with self._context.database.tenant(principal.organisation_id) as session:
            if claim and (kept := await self._context.answers.claim(session, claim)):
                return _response(kept, replayed=True)
            answer = await work(session)
            if claim:
                await self._context.answers.keep(session, claim, answer)
        return _response(answer)

    async def once_slowly(self, principal: Principal, work: Callable[[], Awaitable[Answer]]) -> Response:
        """Run ``work``, which takes seconds and needs no transaction; none is held open meanwhile."""
        claim = self._claim(principal)
        if claim is None:
            return _response(await work())
        tenant, answers = self._context.database.tenant, self._context.answers
        async with tenant(principal.organisation_id) as session:
            if kept := await answers.claim(session, claim):
                return _response(kept, replayed=True)
        try:
            answer = await work()
        except BaseException:
            async with tenant(principal.organisation_id) as session:
                await answers.release(session, claim)
            raise
        async with tenant(principal.organisation_id) as session:
            await answers.keep(session, claim, answer)
        return _response(answer)

    def _claim(self, principal: Principal) -> Claim | None:
        return Claim(principal.organisation_id, self._key, self._request_hash) if self._key else None


async def _idempotency(request: Request, context: ContextDep, key: _Key = None) -> Idempotency:
    content = b"\n".join((str(request.url.path).encode(), request.url.query.encode(), await request.body()))
    return Idempotency(context, key, sha256(content).digest())


IdempotencyDep = Annotated[Idempotency, Depends(_idempotency)]


def _response(answer: Answer, *, replayed: bool = False) -> Response:
    headers = {**answer.headers, REPLAYED: "true"} if replayed else answer.headers
    return Response(answer.body, answer.status_code, headers, JSON)
