"""The certificates of monitors: what the recorder knows of those it is shown, and what people read and accept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.documents import encode
from shared.db.models import Certificate
from shared.domain.result import CertificateChange, CertificateFacts, ChangeKind

KEPT = 100
"""The certificates that a monitor remembers, the newest first; the newest accepted one stays whatever comes."""

COMPARED = 10
"""The accepted certificates that a new one is compared with."""

Pair = tuple[UUID, str]
"""A monitor and the fingerprint of a certificate."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is stored about a certificate of a monitor, and which changes that monitor reports.

    ``changes`` is null for a certificate that is not known; only then the accepted ones are looked up that were
    first seen last, the newest first.
    """

    reported: frozenset[ChangeKind]
    is_accepted: bool
    changes: tuple[CertificateChange, ...] | None
    accepted: tuple[CertificateFacts, ...]

    def reports(self, changes: Iterable[CertificateChange]) -> bool:
        return any(change.kind in self.reported for change in changes)

    @property
    def reported_changes(self) -> tuple[CertificateChange, ...]:
        """Its changes while they are being reported, else none."""
        changes = self.changes or ()
        return changes if not self.is_accepted and self.reports(changes) else ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """A certificate to store; ``accepted_at`` is null for one that is to be reported."""

    monitor_id: UUID
    facts: CertificateFacts
    changes: tuple[CertificateChange, ...]
    first_seen_at: datetime
    accepted_at: datetime | None


_STANDINGS = text("""
    SELECT p.monitor_id, p.fingerprint, coalesce(m.check_spec #> '{tls,report_changes}', '[]')::text,
        c.accepted_at IS NOT NULL, c.changes::text,
        CASE WHEN c.monitor_id IS NULL THEN ARRAY(
            SELECT a.facts::text FROM certificates AS a WHERE a.monitor_id = m.id AND a.accepted_at IS NOT NULL
            ORDER BY a.first_seen_at DESC, a.fingerprint_sha256 DESC LIMIT :compared
        ) END
    FROM unnest(CAST(:monitor_ids AS uuid[]), CAST(:fingerprints AS text[])) AS p (monitor_id, fingerprint)
    JOIN monitors AS m ON m.id = p.monitor_id
    LEFT JOIN certificates AS c ON c.monitor_id = p.monitor_id AND c.fingerprint_sha256 = p.fingerprint
""")
_TURN = text("SELECT pg_advisory_xact_lock(hashtext('tocsin new certificates'))")
# A monitor that a person is changing this moment is left to the next result: to wait would be to hold up all the
# others, and whoever deletes it holds locks that this transaction may want. In order, so that two cannot deadlock.
_ADD = text("""
    INSERT INTO certificates (monitor_id, fingerprint_sha256, organisation_id, first_seen_at, facts, changes,
        accepted_at)
    SELECT m.id, s.fingerprint, m.organisation_id, s.first_seen_at, s.facts::jsonb, s.changes::jsonb, s.accepted_at
    FROM unnest(
        CAST(:monitor_ids AS uuid[]), CAST(:fingerprints AS text[]), CAST(:seen AS timestamptz[]),
        CAST(:facts AS text[]), CAST(:changes AS text[]), CAST(:accepted AS timestamptz[])
    ) AS s (monitor_id, fingerprint, first_seen_at, facts, changes, accepted_at)
    JOIN (
        SELECT id, organisation_id FROM monitors WHERE id = ANY(CAST(:monitor_ids AS uuid[]))
        ORDER BY id FOR KEY SHARE SKIP LOCKED
    ) AS m ON m.id = s.monitor_id
    ORDER BY s.monitor_id, s.fingerprint
    ON CONFLICT (monitor_id, fingerprint_sha256) DO NOTHING
""")
_PRUNE = text("""
    WITH ranked AS (
        SELECT monitor_id, fingerprint_sha256, accepted_at,
            row_number() OVER (PARTITION BY monitor_id
                ORDER BY first_seen_at DESC, fingerprint_sha256 DESC) AS place,
            row_number() OVER (PARTITION BY monitor_id, accepted_at IS NULL
                ORDER BY first_seen_at DESC, fingerprint_sha256 DESC) AS place_of_its_kind
        FROM certificates WHERE monitor_id = ANY(CAST(:monitor_ids AS uuid[]))
    ), surplus AS MATERIALIZED (
        SELECT c.monitor_id, c.fingerprint_sha256 FROM certificates AS c
        JOIN ranked AS r ON r.monitor_id = c.monitor_id AND r.fingerprint_sha256 = c.fingerprint_sha256
        WHERE r.place > :kept AND NOT (r.accepted_at IS NOT NULL AND r.place_of_its_kind = 1)
        FOR UPDATE OF c SKIP LOCKED
    )
    DELETE FROM certificates AS c USING surplus AS s
    WHERE c.monitor_id = s.monitor_id AND c.fingerprint_sha256 = s.fingerprint_sha256
""")
_RELEASE = text("""
    WITH released AS MATERIALIZED (
        SELECT c.monitor_id, c.fingerprint_sha256 FROM certificates AS c
        JOIN unnest(CAST(:monitor_ids AS uuid[]), CAST(:fingerprints AS text[])) AS p (monitor_id, fingerprint)
            ON p.monitor_id = c.monitor_id AND p.fingerprint = c.fingerprint_sha256
        WHERE c.accepted_at IS NULL
        FOR UPDATE OF c SKIP LOCKED
    )
    UPDATE certificates AS c SET accepted_at = :at FROM released AS r
    WHERE c.monitor_id = r.monitor_id AND c.fingerprint_sha256 = r.fingerprint_sha256
""")

_kinds = msgspec.json.Decoder(frozenset[ChangeKind])
_changes = msgspec.json.Decoder(tuple[CertificateChange, ...])
_facts = msgspec.json.Decoder(CertificateFacts)


async def standings(session: AsyncSession, pairs: Collection[Pair]) -> dict[Pair, Standing]:
    """Where these certificates stand, in one query; those of monitors that are gone are left out."""
    rows = await session.execute(_STANDINGS, {**_columns(pairs), "compared": COMPARED})
    return {
        (monitor_id, fingerprint): Standing(
            _kinds.decode(reported),
            is_accepted,
            None if changes is None else _changes.decode(changes),
            tuple(map(_facts.decode, accepted or ())),
        )
        for monitor_id, fingerprint, reported, is_accepted, changes, accepted in rows
    }


async def take_turn(session: AsyncSession) -> None:
    """Wait until nobody else stores new certificates, and keep others from it until the transaction ends."""
    await session.execute(_TURN)


async def add(session: AsyncSession, sightings: Sequence[Sighting]) -> None:
    """Store certificates that are not stored yet, and forget the oldest of monitors that have too many."""
    monitor_ids = [each.monitor_id for each in sightings]
    await session.execute(
        _ADD,
        {
            "monitor_ids": monitor_ids,
            "fingerprints": [each.facts.fingerprint_sha256 for each in sightings],
            "seen": [each.first_seen_at for each in sightings],
            "facts": [encode(each.facts) for each in sightings],
            "changes": [encode(each.changes) for each in sightings],
            "accepted": [each.accepted_at for each in sightings],
        },
    )
    await session.execute(_PRUNE, {"monitor_ids": monitor_ids, "kept": KEPT})


async def release(session: AsyncSession, pairs: Collection[Pair], at: datetime) -> None:
    """Accept, in nobody's name, certificates whose changes their monitors do not report."""
    await session.execute(_RELEASE, {**_columns(pairs), "at": at})


def _columns(pairs: Collection[Pair]) -> dict[str, list[UUID] | list[str]]:
    return {"monitor_ids": [pair[0] for pair in pairs], "fingerprints": [pair[1] for pair in pairs]}


async def newest(
    session: AsyncSession, monitor_id: UUID, *, before: tuple[datetime, str] | None, limit: int
) -> Sequence[Certificate]:
    """The certificates of a monitor, newest first; ``before`` is where the last page ended."""
    place = (Certificate.first_seen_at, Certificate.fingerprint_sha256)
    query = select(Certificate).where(Certificate.monitor_id == monitor_id)
    if before is not None:
        query = query.where(tuple_(*place) < before)
    return (await session.scalars(query.order_by(*(each.desc() for each in place)).limit(limit))).all()


async def lock(session: AsyncSession, monitor_id: UUID, fingerprint: str) -> Certificate | None:
    return await session.get(Certificate, (monitor_id, fingerprint), with_for_update=True)
