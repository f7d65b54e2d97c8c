"""``/v1/dead-letters``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Query, Response

from api.auth import Admin, Reader
from api.context import ContextDep, LetterDesk
from api.cursors import id_cursor, read_id_cursor
from api.idempotency import IdempotencyDep
from api.operator import is_operator
from api.responses import encode, json_response, page
from api.strict_json import StrictRoute
from api.v1.dead_letters.schemas import (
    DeadLetterPage,
    DeadLetterQuery,
    DeadLetterRead,
    Purge,
    Purged,
    Replayed,
)
from shared.services.errors import QueueUnavailableError
from shared.services.idempotency import Answer
from shared.tasks.letters import View, letter_document

router = APIRouter(prefix="/v1/dead-letters", tags=["operations"], route_class=StrictRoute)

_DAY_MS = 86_400_000


async def _view_of_reader(context: ContextDep, principal: Reader) -> View:
    """An organisation sees its own letters, and the operator those of the platform beside them."""
    if await is_operator(context, principal):
        return View((principal.organisation_id, None))
    return View((principal.organisation_id,))


async def _view_of_admin(context: ContextDep, principal: Admin) -> View:
    return await _view_of_reader(context, principal)


def _desk(context: ContextDep) -> LetterDesk:
    if context.letters is None:
        raise QueueUnavailableError("there is no queue beside this application")
    return context.letters


Desk = Annotated[LetterDesk, Depends(_desk)]
ReadView = Annotated[View, Depends(_view_of_reader)]
AdminView = Annotated[View, Depends(_view_of_admin)]


@router.get("", response_model=DeadLetterPage, summary="List dead letters")
async def list_dead_letters(view: ReadView, desk: Desk, query: Annotated[DeadLetterQuery, Query()]) -> Response:
    """Newest first, by the time they first failed."""
    before = read_id_cursor(query.cursor)
    letters = await desk.page(view, task=query.task, before=before, limit=query.limit + 1)
    return page(letters, query.limit, lambda letter: id_cursor(letter.id), letter_document)


@router.get("/{letter_id:id}", response_model=DeadLetterRead, summary="Read a dead letter")
async def get_dead_letter(view: ReadView, desk: Desk, letter_id: UUID) -> Response:
    """With every attempt and its error."""
    return json_response(letter_document(await desk.show(view, letter_id)))


@router.post(
    "/{letter_id:id}/replay",
    status_code=HTTPStatus.ACCEPTED,
    response_model=Replayed,
    summary="Replay a dead letter",
)
async def replay_dead_letter(
    view: AdminView, desk: Desk, principal: Admin, once: IdempotencyDep, letter_id: UUID
) -> Response:
    """The task is queued as if it were new, and the letter is gone; if it fails again, the letter is back."""

    async def work() -> Answer:
        await desk.replay(view, letter_id)
        return Answer(HTTPStatus.ACCEPTED.value, encode({"id": letter_id, "replayed": True}))

    return await once.once_slowly(principal, work)


@router.delete("/{letter_id:id}", status_code=HTTPStatus.NO_CONTENT, summary="Delete a dead letter")
async def delete_dead_letter(view: AdminView, desk: Desk, letter_id: UUID) -> Response:
    """What it stands for will not be done."""
    await desk.delete(view, letter_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/purge", response_model=Purged, summary="Delete old dead letters")
async def purge_dead_letters(
    context: ContextDep, view: AdminView, principal: Admin, once: IdempotencyDep, purge: Annotated[Purge, Body()]
) -> Response:
    """All that failed longer ago than you say."""
    desk = _desk(context)

    async def work() -> Answer:
        before_ms = context.clock.now_ms() - round(purge.older_than_days * _DAY_MS)
        return Answer(HTTPStatus.OK.value, encode({"deleted": await desk.purge(view, before_ms)}))

    return await once.once_slowly(principal, work)
