"""ntfy: push messages by topic, published as JSON, since header fields hold no Unicode."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from shared.channels.http import HttpMessage, HttpUrl, json_body, post
from shared.channels.record import ChannelKind, Outgoing
from shared.channels.style import is_calm, is_over
from shared.domain.notification import Notification, shortened
from shared.domain.spec import Secret, Strict
from shared.http.request import basic

MESSAGE_BYTES = 4000
"""What is longer than 4,096 bytes becomes an attached file."""


class NtfyConfig(Strict):
    """``base_url`` is your own server's, if you have one. A topic that others can guess they can read."""

    topic: Annotated[str, Field(pattern=r"^[-_A-Za-z0-9]{1,64}$"), Secret()]
    base_url: HttpUrl = "https://ntfy.sh"
    token: Annotated[str | None, Field(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$"), Secret()] = None
    username: Annotated[str | None, Field(min_length=1, max_length=200, pattern=r"^[^:\x00-\x1f]+$")] = None
    password: Annotated[str | None, Field(max_length=200), Secret()] = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.token is not None and self.username is not None:
            raise ValueError("token: give either a token or a user name with its password")
        if (self.username is None) is not (self.password is None):
            raise ValueError("password: a user name and a password go together")
        return self


def render(config: NtfyConfig, outgoing: Outgoing) -> HttpMessage:
    words, notification = outgoing.words, outgoing.notification
    body: dict[str, Any] = {
        "topic": config.topic,
        "title": words.title,
        "message": _bounded(words.lines or words.title),
        "priority": 3 if is_calm(notification) else 5,
        "tags": [_tag(notification)],
    }
    headers = [("Content-Type", "application/json")]
    if config.token is not None:
        headers.append(("Authorization", f"Bearer {config.token}"))
    elif config.username is not None:
        headers.append(("Authorization", basic(config.username, config.password or "")))
    return HttpMessage(config.base_url, json_body(body), tuple(headers))


def _bounded(text: str) -> str:
    if len(text.encode()) <= MESSAGE_BYTES:
        return text
    return shortened(text.encode()[: MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…", MESSAGE_BYTES)


def _tag(notification: Notification) -> str:
    if notification.data.incident is None:
        return "information_source"
    return "white_check_mark" if is_over(notification) else "rotating_light"


CHANNEL = ChannelKind("ntfy", NtfyConfig, render, post, lambda config: config.base_url)
