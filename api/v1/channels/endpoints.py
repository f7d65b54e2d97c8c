"""``/v1/channels``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Query, Response
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import Reader, Writer
from api.context import ContextDep
from api.cursors import PageQuery, id_cursor, read_id_cursor
from api.idempotency import IdempotencyDep
from api.openapi import LOCATION, patch_body
from api.responses import encode, json_response, page
from api.strict_json import StrictRoute
from api.v1.channels.schemas import (
    EXAMPLES,
    ChannelChange,
    ChannelPage,
    ChannelRead,
    DeliveryPage,
    NewChannel,
    TestRead,
    channel_document,
    delivery_document,
    editable,
    test_document,
)
from shared.services.errors import InvalidInputError
from shared.services.idempotency import Answer

router = APIRouter(prefix="/v1/channels", tags=["alerting"], route_class=StrictRoute)

Channel = Annotated[NewChannel, Body(openapi_examples=EXAMPLES)]


@router.post(
    "", status_code=HTTPStatus.CREATED, responses=LOCATION, response_model=ChannelRead, summary="Create a channel"
)
async def create_channel(context: ContextDep, principal: Writer, once: IdempotencyDep, wanted: Channel) -> Response:
    """With `default: true` it is told of every incident from now on, unless a policy of yours says otherwise."""

    async def work(session: AsyncSession) -> Answer:
        fields = wanted.model_dump(exclude={"kind"})
        channel = await context.channels.create(session, principal.organisation_id, wanted.kind, fields)
        body = encode(channel_document(channel, context.channels))
        return Answer(HTTPStatus.CREATED.value, body, {"Location": f"{router.prefix}/{channel.id}"})

    return await once.once(principal, work)


@router.get("", response_model=ChannelPage, summary="List channels")
async def list_channels(context: ContextDep, principal: Reader, query: Annotated[PageQuery, Query()]) -> Response:
    """In the order of their creation."""
    after = read_id_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        rows = await context.channels.list(session, after=after, limit=query.limit + 1)
    return page(
        rows, query.limit, lambda row: id_cursor(row.id), lambda row: channel_document(row, context.channels)
    )


@router.get("/{channel_id:id}", response_model=ChannelRead, summary="Read a channel")
async def get_channel(context: ContextDep, principal: Reader, channel_id: UUID) -> Response:
    """Its secrets read `********`."""
    async with context.database.tenant(principal.organisation_id) as session:
        channel = await context.channels.get(session, channel_id)
    return json_response(channel_document(channel, context.channels))


@router.patch(
    "/{channel_id:id}",
    response_model=ChannelRead,
    summary="Change a channel",
    openapi_extra=patch_body(ChannelChange, "ChannelPatch", {"default": False}),
)
async def change_channel(
    context: ContextDep, principal: Writer, channel_id: UUID, patch: Annotated[dict[str, Any], Body()]
) -> Response:
    """Fields you leave out stay as they are; `null` puts a field back to its default.

    `config` is replaced whole, except that a secret written back as `********` stays as it is stored.
    """
    async with context.database.tenant(principal.organisation_id) as session:
        channel = await context.channels.lock(session, channel_id)
        merged = {**editable(channel, context.channels), **patch}
        try:
            wanted = ChannelChange.model_validate(
                {name: value for name, value in merged.items() if value is not None}
            )
        except ValidationError as error:
            raise InvalidInputError.of(error.errors(include_url=False)) from None
        await context.channels.change(session, channel, wanted.model_dump())
    return json_response(channel_document(channel, context.channels))


@router.delete("/{channel_id:id}", status_code=HTTPStatus.NO_CONTENT, summary="Delete a channel")
async def delete_channel(context: ContextDep, principal: Writer, channel_id: UUID) -> Response:
    """What is still on its way to it is not sent; what was sent stays in the timelines of incidents."""
    async with context.database.tenant(principal.organisation_id) as session:
        await context.channels.delete(session, channel_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/{channel_id:id}/test", response_model=TestRead, summary="Send a test")
async def send_test(context: ContextDep, principal: Writer, once: IdempotencyDep, channel_id: UUID) -> Response:
    """Sends now, once, and answers with what happened: also a failure answers 200."""

    async def work() -> Answer:
        async with context.database.tenant(principal.organisation_id) as session:
            channel = await context.channels.get(session, channel_id)
        attempt = await context.channels.try_out(channel)
        async with context.database.tenant(principal.organisation_id) as session:
            await context.channels.note(session, channel, attempt)
        return Answer(HTTPStatus.OK.value, encode(test_document(attempt)))

    return await once.once_slowly(principal, work)


@router.get("/{channel_id:id}/deliveries", response_model=DeliveryPage, summary="List what a channel was told")
async def list_deliveries(
    context: ContextDep, principal: Reader, channel_id: UUID, query: Annotated[PageQuery, Query()]
) -> Response:
    """Newest first, with what became of each."""
    before = read_id_cursor(query.cursor)
    async with context.database.tenant(principal.organisation_id) as session:
        rows = await context.channels.deliveries(session, channel_id, before=before, limit=query.limit + 1)
    return page(rows, query.limit, lambda row: id_cursor(row.id), delivery_document)
