"""The same POST sent twice is done once: the second one gets the answer of the first."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.sealing import Sealer
from shared.db.repositories import idempotency
from shared.domain.clock import Clock, to_datetime
from shared.services.errors import IdempotencyConflictError


class Answer(msgspec.Struct, frozen=True):
    """An answer that can be given again, byte for byte."""

    status_code: int
    body: bytes
    headers: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Claim:
    """A key as one organisation used it for one request."""

    organisation_id: UUID
    key: str
    request_hash: bytes


class Answers:
    """Answers by key, for a day, encrypted: one of them may hold a new API key."""

    def __init__(self, sealer: Sealer, clock: Clock) -> None:
        self._sealer, self._clock = sealer, clock

    async def claim(self, session: AsyncSession, claim: Claim) -> Answer | None:
        """The answer given before, or None when this request is the first.

        In one transaction with the work, a second request waits here until the first has committed. Raises
        ``IdempotencyConflictError`` when the key belongs to another request or to one that is still running.
        """
        now = to_datetime(self._clock.now_ms())
        if await idempotency.claim(session, claim.organisation_id, claim.key, claim.request_hash, now):
            return None
        stored = await idempotency.get(session, claim.key)
        if stored is None:
            raise IdempotencyConflictError("the first request with this Idempotency-Key has failed: send it again")
        if stored.request_hash != claim.request_hash:
            raise IdempotencyConflictError("this Idempotency-Key was used for another request: choose a new one")
        if stored.body is None:
            raise IdempotencyConflictError("the first request with this Idempotency-Key is still running: wait")
        return msgspec.msgpack.decode(self._sealer.decrypt(stored.body), type=Answer)

    async def keep(self, session: AsyncSession, claim: Claim, answer: Answer) -> None:
        body = self._sealer.encrypt(msgspec.msgpack.encode(answer))
        await idempotency.answer(session, claim.key, answer.status_code, body)

    async def release(self, session: AsyncSession, claim: Claim) -> None:
        """Give a key back whose request failed."""
        await idempotency.release(session, claim.key)
