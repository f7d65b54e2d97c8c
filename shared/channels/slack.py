"""Slack's incoming webhooks, and what understands them (Mattermost, Rocket.Chat).

Words of users stand in plain-text objects, which know no markup; Slack wants ``&``, ``<`` and ``>`` escaped even
there.
"""

from __future__ import annotations

from typing import Annotated, Any

from shared.channels.http import HttpMessage, HttpUrl, json_body, origin, post
from shared.channels.record import ChannelKind, Outgoing
from shared.channels.style import colour, fit
from shared.domain.spec import Secret, Strict

HEADER_LIMIT, SECTION_LIMIT, FIELD_LIMIT, FIELDS = 150, 3000, 2000, 10


class SlackConfig(Strict):
    """``url`` is the webhook's address, https://hooks.slack.com/services/…"""

    url: Annotated[HttpUrl, Secret()]


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render(config: SlackConfig, outgoing: Outgoing) -> HttpMessage:
    words = outgoing.words
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(words.title, HEADER_LIMIT)}]
    if len(words.title) > HEADER_LIMIT:
        blocks.append({"type": "section", "text": _plain(words.title, SECTION_LIMIT)})
    if words.body is not None:
        blocks.append({"type": "section", "text": _plain(words.body, SECTION_LIMIT)})
    elif words.facts:
        facts = [_plain(f"{name}\n{value}", FIELD_LIMIT) for name, value in words.facts[:FIELDS]]
        blocks.append({"type": "section", "fields": facts})
    attachment = {"color": f"#{colour(outgoing.notification):06x}", "blocks": blocks}
    # The text is what notifications on a phone show.
    body = {"text": fit(words.title, SECTION_LIMIT, escape), "mrkdwn": False, "attachments": [attachment]}
    return HttpMessage(config.url, json_body(body))


def _plain(text: str, limit: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": fit(text, limit, escape), "emoji": False}


CHANNEL = ChannelKind("slack", SlackConfig, render, post, lambda config: origin(config.url))
