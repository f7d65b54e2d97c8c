"""Alert policies, and whether anybody would hear of an incident by them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.base import new_id
from shared.db.models import AlertPolicy, Channel
from shared.db.repositories import alert_policies, channels
from shared.domain.alert_policy import DEFAULT, AlertPolicySpec
from shared.domain.clock import Clock, to_datetime
from shared.domain.escalation import channels_of
from shared.services.errors import InvalidInputError, NotFoundError, Problem


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a policy has a channel that works; ``problems`` name those that don't, and steps without any."""

    is_working: bool
    problems: tuple[str, ...]


class AlertPolicyService:
    """Use cases over an open session of one tenant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def create(self, session: AsyncSession, organisation_id: UUID, spec: AlertPolicySpec) -> AlertPolicy:
        """Raises ``InvalidInputError`` for a channel that is not there."""
        now = self._now()
        policy = AlertPolicy(id=new_id(), organisation_id=organisation_id, created_at=now)
        await self._assign(session, policy, spec)
        session.add(policy)
        await session.flush()
        return policy

    async def get(self, session: AsyncSession, policy_id: UUID) -> AlertPolicy:
        """Raises ``NotFoundError``."""
        policy = await alert_policies.get(session, policy_id)
        if policy is None:
            raise NotFoundError("alert policy")
        return policy

    async def list(
        self, session: AsyncSession, *, after: tuple[int, UUID] | None, limit: int
    ) -> Sequence[AlertPolicy]:
        return await alert_policies.list_policies(session, after=after, limit=limit)

    async def change(self, session: AsyncSession, policy_id: UUID, patch: Mapping[str, Any]) -> AlertPolicy:
        """Merge fields; null puts one back to its default. Raises ``NotFoundError``, ``InvalidInputError``."""
        policy = await self._locked(session, policy_id)
        merged = {**policy.spec, **patch}
        try:
            spec = AlertPolicySpec.model_validate(
                {name: value for name, value in merged.items() if value is not None}
            )
        except ValidationError as error:
            raise InvalidInputError.of(error.errors(include_url=False)) from None
        await self._assign(session, policy, spec)
        return policy

    async def delete(self, session: AsyncSession, policy_id: UUID) -> None:
        """Raises ``NotFoundError``. Incidents that escalate by it go on by the default policy."""
        await self._locked(session, policy_id)
        await alert_policies.remove(session, policy_id)

    async def channels(self, session: AsyncSession, organisation_id: UUID) -> Sequence[Channel]:
        """What ``reach`` looks at."""
        return await channels.of_organisations(session, {organisation_id})

    async def _locked(self, session: AsyncSession, policy_id: UUID) -> AlertPolicy:
        policy = await alert_policies.lock(session, policy_id)
        if policy is None:
            raise NotFoundError("alert policy")
        return policy

    async def _assign(self, session: AsyncSession, policy: AlertPolicy, spec: AlertPolicySpec) -> None:
        known = await channels.existing(session, spec.channel_ids())
        if problems := list(_unknown(spec, known)):
            raise InvalidInputError(problems)
        policy.priority, policy.updated_at = spec.priority, self._now()
        policy.spec = spec.model_dump(mode="json", by_alias=True)

    def _now(self) -> datetime:
        return to_datetime(self._clock.now_ms())


def _unknown(spec: AlertPolicySpec, known: Collection[UUID]) -> list[Problem]:
    return [
        Problem(f"steps.{index}.channels.{place}", "there is no such channel")
        for index, step in enumerate(spec.steps)
        if step.channels != DEFAULT
        for place, channel in enumerate(step.channels)
        if channel not in known
    ]


def reach(spec: AlertPolicySpec, known: Sequence[Channel]) -> Reach:
    """Who would hear of an incident by this policy, as far as the last deliveries tell."""
    by_id = {channel.id: channel for channel in known}
    defaults = [channel.id for channel in known if channel.is_default]
    problems: dict[str, None] = {}
    is_working = False
    for number, step in enumerate(spec.steps, 1):
        found = [by_id[key] for key in channels_of(step, defaults) if key in by_id]
        if not found:
            instead = ": the default channels are told instead" if defaults else ": nobody is told"
            problems[f"step {number} has no channel{instead}"] = None
        for channel in found or [by_id[key] for key in defaults]:
            if channel.failing_since is None:
                is_working = True
            else:
                problems[f"channel {channel.name!r} fails since {channel.failing_since:%Y-%m-%d %H:%M} UTC"] = None
    return Reach(is_working, tuple(problems))
