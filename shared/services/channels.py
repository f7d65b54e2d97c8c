"""Channels: stored with their secrets sealed, shown with them masked, tried out on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.channels.deliver import deliver
from shared.channels.errors import ChannelError
from shared.channels.record import Outgoing, Receipt, Tools
from shared.channels.registry import KINDS, configuration
from shared.channels.template import TemplateFailedError, Templates, check
from shared.contracts.sealing import MASK, MOVED, NEVER_SENT, Sealer, SealingError
from shared.db.base import new_id
from shared.db.models import Channel, Delivery
from shared.db.repositories import channels, deliveries
from shared.domain.clock import Clock, to_datetime
from shared.domain.destinations import destinations
from shared.domain.notification import Event, Notification
from shared.domain.spec import Strict
from shared.services.errors import InvalidInputError, NotFoundError, Problem
from shared.services.notifications import SAMPLES, dedupe_key, stored, words_for

_COLUMNS = {"name": "name", "default": "is_default", "fallback_channel_id": "fallback_channel_id"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a test came to. ``outcome`` is delivered or failed."""

    delivery_id: UUID
    outcome: str
    receipt: Receipt
    error: str | None
    duration_ms: float


class ChannelService:
    """Use cases over an open session of one tenant; ``tools`` are for sending."""

    def __init__(self, sealer: Sealer, clock: Clock, tools: Tools) -> None:
        self._sealer, self._clock, self._tools = sealer, clock, tools

    async def create(
        self, session: AsyncSession, organisation_id: UUID, kind: str, fields: Mapping[str, Any]
    ) -> Channel:
        """Store a channel; raises ``InvalidInputError``."""
        now = self._now()
        channel = Channel(
            id=new_id(), organisation_id=organisation_id, kind=kind, config={}, templates={}, created_at=now
        )
        await self._assign(session, channel, fields)
        session.add(channel)
        await session.flush()
        return channel

    async def get(self, session: AsyncSession, channel_id: UUID) -> Channel:
        """Raises ``NotFoundError``."""
        channel = await channels.get(session, channel_id)
        if channel is None:
            raise NotFoundError("channel")
        return channel

    async def list(self, session: AsyncSession, *, after: UUID | None, limit: int) -> Sequence[Channel]:
        return await channels.list_channels(session, after=after, limit=limit)

    async def lock(self, session: AsyncSession, channel_id: UUID) -> Channel:
        """Raises ``NotFoundError``."""
        channel = await channels.lock(session, channel_id)
        if channel is None:
            raise NotFoundError("channel")
        return channel

    async def change(self, session: AsyncSession, channel: Channel, fields: Mapping[str, Any]) -> None:
        """Replace the fields of a locked channel; a mask keeps a secret. Raises ``InvalidInputError``."""
        await self._assign(session, channel, fields)
        channel.failing_since = channel.last_error = None  # perhaps it is mended; the next delivery tells

    async def delete(self, session: AsyncSession, channel_id: UUID) -> None:
        """Raises ``NotFoundError``. Its deliveries stay in the log of their incidents."""
        await self.lock(session, channel_id)
        await channels.remove(session, channel_id)

    async def deliveries(
        self, session: AsyncSession, channel_id: UUID, *, before: UUID | None, limit: int
    ) -> Sequence[Delivery]:
        """Newest first; raises ``NotFoundError``."""
        await self.get(session, channel_id)
        return await deliveries.of_channel(session, channel_id, before=before, limit=limit)

    async def try_out(self, channel: Channel) -> Attempt:
        """Send a test now, once; needs no session and takes seconds. Raises ``SealingError``."""
        notification = Notification(Event.TEST, self._now())
        outgoing = Outgoing(new_id(), notification, words_for(channel, notification))
        began = self._clock.monotonic()
        outcome, receipt, error = "delivered", Receipt(), None
        try:
            config = self._config(channel.kind, self._sealer.unsealed(channel.config))
            receipt = await deliver(channel.kind, config, outgoing, self._tools)
        except ChannelError as failure:
            outcome, receipt, error = "failed", failure.receipt, str(failure)
        duration_ms = (self._clock.monotonic() - began) * 1000
        return Attempt(outgoing.id, outcome, receipt, error, round(duration_ms, 1))

    async def note(self, session: AsyncSession, channel: Channel, attempt: Attempt) -> None:
        """Put a test into the channel's log."""
        now = self._now()
        session.add(
            Delivery(
                id=attempt.delivery_id,
                organisation_id=channel.organisation_id,
                dedupe_key=dedupe_key(attempt.delivery_id, "test", channel.id),
                event=Event.TEST.value,
                channel_id=channel.id,
                channel_name=channel.name,
                channel_kind=channel.kind,
                notification=stored(Notification(Event.TEST, now)),
                state=attempt.outcome,
                attempts=1,
                status_code=attempt.receipt.status_code,
                response=attempt.receipt.excerpt,
                error=attempt.error,
                created_at=now,
                settled_at=now,
            )
        )
        await channels.note_outcome(session, channel.id, attempt.error, now)

    def masked(self, channel: Channel) -> dict[str, Any]:
        """The configuration as it may be shown."""
        return self._sealer.masked(channel.config)

    def destination(self, channel: Channel) -> str | None:
        """Where it leads, without secrets; None when that cannot be read with the keys and rules of today."""
        try:
            config = self._config(channel.kind, self._sealer.unsealed(channel.config))
        except (SealingError, InvalidInputError):
            return None
        return KINDS[channel.kind].destination(config)

    async def _assign(self, session: AsyncSession, channel: Channel, fields: Mapping[str, Any]) -> None:
        await self._check_fallback(session, channel.id, fields["fallback_channel_id"])
        for name, column in _COLUMNS.items():
            setattr(channel, column, fields[name])
        channel.config = self._sealed(channel, fields["config"])
        channel.templates = _templates(fields["templates"])
        channel.updated_at = self._now()

    async def _check_fallback(self, session: AsyncSession, channel_id: UUID, fallback: UUID | None) -> None:
        if fallback is None:
            return
        if fallback == channel_id:
            raise InvalidInputError([Problem("fallback_channel_id", "a channel cannot stand in for itself")])
        if not await channels.existing(session, {fallback}):
            raise InvalidInputError([Problem("fallback_channel_id", "there is no such channel")])

    def _sealed(self, channel: Channel, config: Mapping[str, Any]) -> dict[str, Any]:
        """The stored form. Masks are replaced first, since no address or key that is checked looks like one."""
        try:
            kept = self._sealer.unsealed(channel.config)
        except SealingError:  # the key is lost: every secret has to be written anew
            kept = {}
        plain = _unmasked(config, channel.config, kept, ("config",))
        sealed = self._sealer.seal(self._config(channel.kind, plain), channel.config)
        masked = [path for path in _masks(config, ("config",)) if path[-1] not in NEVER_SENT]
        if masked and destinations(sealed) - destinations(channel.config):
            raise InvalidInputError([Problem(".".join(masked[0]), MOVED)])
        return sealed

    def _config(self, kind: str, config: Mapping[str, Any]) -> Strict:
        try:
            return configuration(kind, config)
        except ValidationError as error:
            problems = [{**each, "loc": ("config", *each["loc"])} for each in error.errors(include_url=False)]
            raise InvalidInputError.of(problems) from None

    def _now(self) -> datetime:
        return to_datetime(self._clock.now_ms())


def _masks(config: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _masks(value, (*path, name))
        elif value == MASK:
            yield (*path, name)


def _unmasked(config: Mapping[str, Any], sealed: Any, plain: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """The configuration with the stored secrets where it has masks."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        before = sealed.get(name) if isinstance(sealed, dict) else None
        opened = plain.get(name) if isinstance(plain, dict) else None
        if isinstance(value, dict):
            found[name] = _unmasked(value, before, opened, (*path, name))
        elif value == MASK:
            if not isinstance(before, dict) or opened is None:
                told = "the mask stands for a stored secret, and none is stored here: write the secret itself"
                raise InvalidInputError([Problem(".".join((*path, name)), told)])
            found[name] = opened
        else:
            found[name] = value
    return found


def _templates(templates: Mapping[str, Any]) -> dict[str, Any]:
    parsed = Templates.model_validate(templates)
    for name in Templates.model_fields:
        try:
            check(Templates.model_validate({name: getattr(parsed, name)}), SAMPLES)
        except TemplateFailedError as error:
            raise InvalidInputError([Problem(f"templates.{name}", str(error))]) from None
    return parsed.model_dump(exclude_none=True)
