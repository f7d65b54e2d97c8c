"""Telegram's bots. HTML, where only three characters need an escape; plain text when even that is refused."""

from __future__ import annotations

import html
from typing import Annotated, Any

import msgspec
from pydantic import Field, field_validator

from shared.channels.errors import ChannelError, TemporaryError
from shared.channels.http import HttpMessage, HttpUrl, json_body, post
from shared.channels.record import ChannelKind, Outgoing, Receipt, Tools
from shared.channels.style import fit, is_calm
from shared.domain.notification import shortened
from shared.domain.spec import Secret, Strict

TEXT_LIMIT = 4096
TITLE_LIMIT = 500


class TelegramConfig(Strict):
    """``chat_id`` is a number (as text or not) or @name; ``base_url`` another Bot API server."""

    token: Annotated[str, Field(min_length=10, max_length=200, pattern=r"^[0-9]+:[A-Za-z0-9_-]+$"), Secret()]
    chat_id: Annotated[str, Field(min_length=1, max_length=100)]
    thread_id: Annotated[int | None, Field(ge=1, description="A topic of a group.")] = None
    base_url: HttpUrl = "https://api.telegram.org"

    @field_validator("chat_id", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def escape(text: str) -> str:
    return html.escape(text, quote=False)


def render(config: TelegramConfig, outgoing: Outgoing) -> HttpMessage:
    words = outgoing.words
    title = fit(words.title, TITLE_LIMIT, escape)
    marked = f"<b>{title}</b>\n{fit(words.lines, TEXT_LIMIT - TITLE_LIMIT - 8, escape)}"
    common: dict[str, Any] = {
        "chat_id": config.chat_id,
        "disable_notification": is_calm(outgoing.notification),
        "link_preview_options": {"is_disabled": True},
    }
    if config.thread_id is not None:
        common["message_thread_id"] = config.thread_id
    url = f"{config.base_url.rstrip('/')}/bot{config.token}/sendMessage"
    plain = HttpMessage(url, json_body({**common, "text": shortened(words.text, TEXT_LIMIT)}))
    return HttpMessage(url, json_body({**common, "text": marked.strip(), "parse_mode": "HTML"}), plain=plain)


async def send(config: TelegramConfig, message: HttpMessage, tools: Tools) -> Receipt:
    try:
        return await post(config, message, tools)
    except TemporaryError as error:
        if error.retry_after is None:
            error.retry_after = _asked_wait(error)
        raise


class _Parameters(msgspec.Struct, frozen=True):
    retry_after: float | None = None


class _Refusal(msgspec.Struct, frozen=True):
    parameters: _Parameters = _Parameters()


def _asked_wait(error: ChannelError) -> float | None:
    """Telegram says in the body, not in a header, how long to wait."""
    try:
        wait = msgspec.json.decode(error.receipt.excerpt or "", type=_Refusal).parameters.retry_after
    except msgspec.DecodeError:
        return None
    return None if wait is None or wait < 0 else wait


CHANNEL = ChannelKind("telegram", TelegramConfig, render, send, lambda config: f"chat {config.chat_id}")
