"""Stored results in their public form."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncSession

from shared.contracts.documents import ResultDetail, ResultDocument
from shared.db.repositories import results
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import ResultStatus

_detail = msgspec.json.Decoder(ResultDetail)


async def list_results(
    session: AsyncSession,
    monitor_id: UUID,
    *,
    since: datetime | None,
    until: datetime | None,
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[ResultDocument]:
    """Results of one monitor in ``[since, until)``, newest first, from behind ``before``."""
    rows = await results.list_results(session, monitor_id, since=since, until=until, before=before, limit=limit)
    return [_document(row) for row in rows]


def _document(row: Row[*tuple[Any, ...]]) -> ResultDocument:
    detail = _detail.decode(row.detail)
    return ResultDocument(
        monitor_id=row.monitor_id,
        region=row.region,
        scheduled_at=row.scheduled_at,
        started_at=row.started_at,
        status=ResultStatus(row.status),
        attempts=row.attempts,
        error=CheckError(ErrorKind(row.error_kind), row.error_message or "") if row.error_kind else None,
        timings_ms=detail.timings_ms,
        http=detail.http,
        tls=detail.tls,
        assertions=detail.assertions,
        trigger=row.trigger,
        revision=row.revision,
        tcp=detail.tcp,
        dns=detail.dns,
        ping=detail.ping,
        evidence=detail.evidence,
        steps=detail.steps,
    )
