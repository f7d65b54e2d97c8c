"""Discord's webhooks. Words of users go into an embed, with every mark of Discord's Markdown escaped."""

from __future__ import annotations

import re
from typing import Annotated, Any

from shared.channels.http import HttpMessage, HttpUrl, json_body, origin, post
from shared.channels.record import ChannelKind, Outgoing
from shared.channels.style import colour, fit
from shared.domain.spec import Secret, Strict

TITLE_LIMIT, DESCRIPTION_LIMIT, VALUE_LIMIT, FACTS = 256, 4096, 512, 8
"""Of the last two less than Discord allows, so that all of an embed stays below 6,000 characters."""

# Discord takes a backslash before any of these, and shows what follows as it is.
_MARKS = re.compile(r"([\\*_~`|>#\-+\[\]():<@!.])")


class DiscordConfig(Strict):
    """``url`` is the webhook's address, https://discord.com/api/webhooks/…"""

    url: Annotated[HttpUrl, Secret()]


def escape(text: str) -> str:
    return _MARKS.sub(r"\\\1", text)


def render(config: DiscordConfig, outgoing: Outgoing) -> HttpMessage:
    words, notification = outgoing.words, outgoing.notification
    embed: dict[str, Any] = {
        "title": fit(words.title, TITLE_LIMIT, escape),
        "color": colour(notification),
        "timestamp": notification.timestamp.isoformat(),
    }
    if words.body is not None:
        embed["description"] = fit(words.body, DESCRIPTION_LIMIT, escape)
    else:
        embed["fields"] = [
            {"name": name, "value": fit(value, VALUE_LIMIT, escape), "inline": False}
            for name, value in words.facts[:FACTS]
        ]
    # Without this a monitor named "@everyone" would wake everyone.
    return HttpMessage(config.url, json_body({"embeds": [embed], "allowed_mentions": {"parse": []}}))


CHANNEL = ChannelKind("discord", DiscordConfig, render, post, lambda config: origin(config.url))
