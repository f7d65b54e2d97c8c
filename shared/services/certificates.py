"""The certificates that monitors are shown: which are new, what they change, and who accepted that."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.wire import ResultMessage
from shared.db.models import Certificate
from shared.db.repositories import certificates as repository
from shared.db.repositories.certificates import Pair, Sighting, Standing
from shared.domain.certificate import certificate_news
from shared.domain.clock import Clock, to_datetime
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import CertificateChange, CertificateFacts, ResultStatus
from shared.services.api_keys import actor_name
from shared.services.certificate_turns import CertificateTurns
from shared.services.errors import NotFoundError

REMEMBERED = 50_000
"""Accepted certificates that a recorder knows without asking, of as many monitors: about 20 MB."""

_REFUSED = frozenset(kind for kind in ErrorKind if kind.value.startswith("tls_"))
"""What makes a certificate none of the target's own: a captive portal must not become what is compared with."""

_NOT_THIS_TIME = "; this time an accepted certificate was shown"

Seen = tuple[CertificateFacts, int]
"""A certificate, and when it was shown, in milliseconds."""
Changes = tuple[CertificateChange, ...]


class CertificateWatch:
    """Compares the certificates of results with those that are known; one for each recorder.

    Only what was read as accepted is remembered: what a transaction wrote may yet be rolled back.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._limit = remembered
        self._accepted: OrderedDict[Pair, None] = OrderedDict()
        self._turns = CertificateTurns()

    async def judge(
        self, session: AsyncSession, messages: Sequence[ResultMessage], now_ms: int
    ) -> Sequence[ResultMessage]:
        """The results as they are to be stored: those that are up with a change to report turned ``degraded``.

        New certificates are stored. The caller owns the transaction, and calls this before anything is locked.
        """
        shown, waiting = self._to_look_up(messages, now_ms), self._turns.pairs(messages)
        if not shown and not waiting:
            return messages
        standings = await repository.standings(session, {*shown, *waiting})
        if unknown := [pair for pair in shown if pair in standings and standings[pair].changes is None]:
            # Of two that are compared with what there was before either, none would be news.
            await repository.take_turn(session)
            standings |= await repository.standings(session, unknown)
        self._remember(pair for pair, standing in standings.items() if standing.is_accepted)
        comparison = _Comparison(standings, to_datetime(now_ms))
        for pair, (facts, seen_ms) in sorted(shown.items(), key=lambda item: item[1][1]):
            comparison.take(pair, facts, to_datetime(seen_ms))
        await comparison.write(session)
        still = {pair: standings[pair].reported_changes for pair in waiting if pair in standings}
        reports = {**{pair: changes for pair, changes in still.items() if changes}, **comparison.reports}
        return self._turned(messages, reports) if reports or waiting else messages

    def _to_look_up(self, messages: Sequence[ResultMessage], now_ms: int) -> dict[Pair, Seen]:
        """The certificates that are not known to be accepted, and when they were shown first."""
        found: dict[Pair, Seen] = {}
        for message in messages:
            facts = _shown(message)
            if facts is None:
                continue
            pair = message.monitor_id, facts.fingerprint_sha256
            if pair in self._accepted:
                self._accepted.move_to_end(pair)
                continue
            # The clock of a worker may be ahead, and what was seen in the future would stay the newest for ever.
            seen_ms = min(message.slot_ms, now_ms)
            if pair not in found or seen_ms < found[pair][1]:
                found[pair] = facts, seen_ms
        return found

    def _turned(self, messages: Sequence[ResultMessage], reports: dict[Pair, Changes]) -> list[ResultMessage]:
        """Those that are up made ``degraded``: with what they show, or with what came and went at their place."""
        found = {}
        for message in sorted(messages, key=lambda message: message.slot_ms):
            facts, cause, note = _shown(message), None, ""
            if facts is not None and (pair := (message.monitor_id, facts.fingerprint_sha256)) in reports:
                self._turns.show_reported(message, pair)
                cause = pair
            elif facts is not None:
                cause, note = self._turns.show_other(message, reports), _NOT_THIS_TIME
            found[id(message)] = message if cause is None else _degraded(message, reports[cause], note)
        return [found[id(message)] for message in messages]

    def _remember(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._accepted[pair] = None
        while len(self._accepted) > self._limit:
            self._accepted.popitem(last=False)


class _Comparison:
    """The certificates of one batch, taken in the order in which they were shown."""

    def __init__(self, standings: dict[Pair, Standing], now: datetime) -> None:
        self._standings, self._now = standings, now
        self._accepted: dict[UUID, list[CertificateFacts]] = {}
        self._new: list[Sighting] = []
        self._released: list[Pair] = []
        self.reports: dict[Pair, Changes] = {}

    def take(self, pair: Pair, facts: CertificateFacts, seen_at: datetime) -> None:
        standing = self._standings.get(pair)
        if standing is None or standing.is_accepted:
            return
        changes = standing.changes
        if changes is None:
            changes = self._changes(pair[0], facts, standing)
        is_reported = standing.reports(changes)
        if is_reported:
            self.reports[pair] = changes
        if standing.changes is None:
            accepted_at = None if is_reported else self._now
            self._new.append(Sighting(pair[0], facts, changes, seen_at, accepted_at))
        elif not is_reported:  # the monitor reports less than it did
            self._released.append(pair)

    def _changes(self, monitor_id: UUID, facts: CertificateFacts, standing: Standing) -> Changes:
        accepted = self._accepted.setdefault(monitor_id, list(standing.accepted))
        changes = certificate_news(accepted, facts)
        if not standing.reports(changes):
            accepted.insert(0, facts)
        return changes

    async def write(self, session: AsyncSession) -> None:
        if self._new:
            await repository.add(session, self._new)
        if self._released:
            await repository.release(session, self._released, self._now)


def _shown(message: ResultMessage) -> CertificateFacts | None:
    """The certificate of a result, unless the check refused it."""
    verdict = message.verdict
    if verdict.tls is None or (verdict.error is not None and verdict.error.kind in _REFUSED):
        return None
    return verdict.tls.certificate


def _degraded(message: ResultMessage, changes: Changes, note: str) -> ResultMessage:
    if message.verdict.status is not ResultStatus.UP:
        return message
    error = CheckError(ErrorKind.TLS_CHANGED, "; ".join(change.message for change in changes) + note)
    return msgspec.structs.replace(
        message, verdict=replace(message.verdict, status=ResultStatus.DEGRADED, error=error)
    )


async def list_certificates(
    session: AsyncSession, monitor_id: UUID, *, before: tuple[datetime, str] | None, limit: int
) -> Sequence[Certificate]:
    """The certificates of one monitor, newest first, from behind ``before``."""
    return await repository.newest(session, monitor_id, before=before, limit=limit)


async def accept_certificate(
    session: AsyncSession, monitor_id: UUID, fingerprint: str, key_id: UUID, clock: Clock
) -> Certificate:
    """Report a certificate no longer, from the next result on; accepting twice changes nothing.

    Raises ``NotFoundError``.
    """
    certificate = await repository.lock(session, monitor_id, fingerprint)
    if certificate is None:
        raise NotFoundError("certificate")
    if certificate.accepted_at is None:
        certificate.accepted_at = to_datetime(clock.now_ms())
        certificate.accepted_by = await actor_name(session, key_id)
    return certificate
