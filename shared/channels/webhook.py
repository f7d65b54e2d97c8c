"""A POST to an address of the user's own, signed as Standard Webhooks describes."""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from typing import Annotated, Self

import msgspec
from pydantic import AfterValidator, Field, model_validator

from shared.channels.http import HttpMessage, origin, post
from shared.channels.record import ChannelKind, Outgoing, Receipt, Tools
from shared.domain.headers import check_request_headers
from shared.domain.notification import Notification
from shared.domain.spec import Secret, Strict
from shared.domain.url import parse_url, split_userinfo
from shared.http.request import basic

_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 16, 128


def _dialable(url: str) -> str:
    parse_url(split_userinfo(url)[0])
    return url


def _decodable(secret: str | None) -> str | None:
    if secret is not None:
        key_of(secret)
    return secret


def key_of(secret: str) -> bytes:
    """The signing key; raises ``ValueError`` that says how a secret looks."""
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("write the secret as whsec_ and base64") from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError(f"the secret must be {_SHORTEST} to {_LONGEST} bytes, in base64 behind whsec_")
    return key


SigningSecret = Annotated[str | None, Field(max_length=200), AfterValidator(_decodable), Secret()]

Headers = Annotated[dict[str, str], Field(max_length=20), AfterValidator(check_request_headers), Secret()]


class WebhookConfig(Strict):
    """While a secret is replaced, both sign: give the former one as ``previous_secret`` until receivers know.

    User and password inside ``url`` are sent as basic authentication.
    """

    url: Annotated[str, Field(max_length=2048), AfterValidator(_dialable), Secret()]
    secret: SigningSecret = None
    previous_secret: SigningSecret = None
    headers: Headers = Field(default_factory=dict)

    @model_validator(mode="after")
    def _previous_needs_a_present(self) -> Self:
        if self.previous_secret is not None and self.secret is None:
            raise ValueError("previous_secret: without a secret there is nothing to rotate to")
        return self


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """What is posted; it is signed when it is sent, because receivers refuse an old time."""

    url: str
    id: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]


def render(config: WebhookConfig, outgoing: Outgoing) -> WebhookMessage:
    url, userinfo = split_userinfo(config.url)
    chosen = {name.lower() for name in config.headers}
    headers = [("Content-Type", "application/json")] if "content-type" not in chosen else []
    if userinfo and "authorization" not in chosen:
        headers.append(("Authorization", basic(*userinfo)))
    return WebhookMessage(
        url=url,
        id=f"msg_{outgoing.id.hex}",
        body=body_of(outgoing.notification),
        headers=(*headers, *config.headers.items()),
        secrets=tuple(secret for secret in (config.secret, config.previous_secret) if secret),
    )


def body_of(notification: Notification) -> bytes:
    """The public form of a notification; receivers and tests rely on it."""
    return msgspec.json.encode(notification)


def signed(message: WebhookMessage, now_s: int) -> tuple[tuple[str, str], ...]:
    """The headers of Standard Webhooks; a signature per secret, the present one first."""
    content = f"{message.id}.{now_s}.".encode() + message.body
    signatures = [_signature(key_of(secret), content) for secret in message.secrets]
    fields = [("webhook-id", message.id), ("webhook-timestamp", str(now_s))]
    return (*fields, ("webhook-signature", " ".join(signatures))) if signatures else tuple(fields)


def _signature(key: bytes, content: bytes) -> str:
    return f"v1,{base64.b64encode(hmac.digest(key, content, 'sha256')).decode()}"


async def send(config: WebhookConfig, message: WebhookMessage, tools: Tools) -> Receipt:
    headers = (*message.headers, *signed(message, tools.clock.now_ms() // 1000))
    return await post(config, HttpMessage(message.url, message.body, headers), tools)


CHANNEL = ChannelKind("webhook", WebhookConfig, render, send, lambda config: origin(config.url))
