"""All kinds of channels. A new one is one module and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from shared.channels import apprise, discord, email, ntfy, pagerduty, slack, teams, telegram, webhook
from shared.channels.record import ChannelKind
from shared.domain.spec import Strict

Kind = Literal["webhook", "email", "slack", "discord", "teams", "telegram", "pagerduty", "ntfy", "apprise"]
_MODULES = (webhook, email, slack, discord, teams, telegram, pagerduty, ntfy, apprise)
KINDS: Mapping[str, ChannelKind] = {module.CHANNEL.kind: module.CHANNEL for module in _MODULES}
assert set(KINDS) == set(get_args(Kind))


def configuration(kind: str, config: Mapping[str, Any]) -> Strict:
    """The configuration of a channel; raises pydantic's ``ValidationError``."""
    return KINDS[kind].config.model_validate(config)
