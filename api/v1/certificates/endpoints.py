"""``/v1/monitors/{id}/certificates``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import Reader, Writer
from api.context import ContextDep
from api.cursors import PageQuery, certificate_cursor, read_certificate_cursor
from api.idempotency import IdempotencyDep
from api.responses import encode, page
from api.strict_json import StrictRoute
from api.v1.certificates.schemas import CertificatePage, CertificateRead, certificate_document
from shared.services.certificates import accept_certificate, list_certificates
from shared.services.idempotency import Answer

router = APIRouter(
    prefix="/v1/monitors/{monitor_id:id}/certificates", tags=["certificates"], route_class=StrictRoute
)

Fingerprint = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="`fingerprint_sha256` of the certificate.")]


@router.get("", response_model=CertificatePage, summary="List the certificates of a monitor")
async def list_monitor_certificates(
    context: ContextDep, principal: Reader, monitor_id: UUID, query: Annotated[PageQuery, Query()]
) -> Response:
    """Those that its checks were shown, newest first; the newest hundred are kept."""
    before = read_certificate_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        await context.monitors.view(session, monitor_id)
        found = await list_certificates(session, monitor_id, before=before, limit=query.limit + 1)
    return page(
        found,
        query.limit,
        lambda each: certificate_cursor(each.first_seen_at, each.fingerprint_sha256),
        certificate_document,
    )


@router.post("/{fingerprint}/accept", response_model=CertificateRead, summary="Accept a certificate")
async def accept_monitor_certificate(
    context: ContextDep, principal: Writer, once: IdempotencyDep, monitor_id: UUID, fingerprint: Fingerprint
) -> Response:
    """Its changes are reported no longer, from the next result on. Accepting twice changes nothing."""

    async def work(session: AsyncSession) -> Answer:
        found = await accept_certificate(session, monitor_id, fingerprint, principal.key_id, context.clock)
        return Answer(HTTPStatus.OK.value, encode(certificate_document(found)))

    return await once.once(principal, work)
