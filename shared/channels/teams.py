"""Microsoft Teams: an adaptive card for a workflow's webhook. Users' words are text runs, which know no markup."""

from __future__ import annotations

from typing import Annotated, Any

from shared.channels.http import HttpMessage, HttpUrl, json_body, origin, post
from shared.channels.record import ChannelKind, Outgoing
from shared.channels.style import is_over
from shared.domain.notification import Notification, shortened
from shared.domain.spec import Secret, Strict

BODY_LIMIT = 5000
"""Characters; a card may have 28 KB."""


class TeamsConfig(Strict):
    """``url`` is the address of the workflow "Post to a channel when a webhook request is received"."""

    url: Annotated[HttpUrl, Secret()]


def render(config: TeamsConfig, outgoing: Outgoing) -> HttpMessage:
    words = outgoing.words
    runs = [
        _text({"text": words.title, "weight": "Bolder", "size": "Medium", "color": _mood(outgoing.notification)})
    ]
    if words.body is not None:
        runs.append(_text({"text": shortened(words.body, BODY_LIMIT)}))
    else:
        runs += [_text({"text": f"{name}: ", "weight": "Bolder"}, {"text": value}) for name, value in words.facts]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": runs,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return HttpMessage(config.url, json_body({"type": "message", "attachments": [attachment]}))


def _text(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", **run} for run in runs]}


def _mood(notification: Notification) -> str:
    incident = notification.data.incident
    if incident is None:
        return "Accent"
    if is_over(notification):
        return "Good"
    return "Warning" if incident.severity == "degraded" else "Attention"


CHANNEL = ChannelKind("teams", TeamsConfig, render, post, lambda config: origin(config.url))
