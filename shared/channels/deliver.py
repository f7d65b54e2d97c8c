"""Sending through a channel of any kind. Whatever leaves here, as receipt or error, is free of its secrets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from traceback import format_exc
from urllib.parse import urlsplit

import structlog

from shared.channels.errors import ChannelError, PermanentError, TemporaryError, redact_receipt
from shared.channels.record import Outgoing, Receipt, Tools
from shared.channels.registry import KINDS
from shared.domain.redaction import forms_of, hide, secrets_of
from shared.domain.spec import Strict

log = structlog.get_logger(__name__)

_SHORTEST_PART = 6
"""Shorter parts of an address are words like "api" or "send"; hiding those would hide what services answer."""


async def deliver(kind: str, config: Strict, outgoing: Outgoing, tools: Tools) -> Receipt:
    """Send one notification, within ``tools.timeout_seconds``; raises ``TemporaryError`` and ``PermanentError``."""
    channel, secrets = KINDS[kind], secrets_in(config)
    try:
        async with asyncio.timeout(tools.timeout_seconds):
            receipt = await channel.send(config, channel.render(config, outgoing), tools)
    except TimeoutError:
        told = f"no answer within {tools.timeout_seconds:g} s"
        raise TemporaryError(told, is_uncertain=True) from None
    except ChannelError as error:
        # Without its cause: that one still has the secrets.
        raise error.redacted(secrets) from None
    except Exception as error:  # noqa: BLE001 code of others runs in here, and its failure is an outcome too
        log.error("a channel failed in a way of its own", channel=kind, trace=hide(format_exc(), secrets))
        told = f"this channel failed in a way of its own ({type(error).__name__}: {error})"
        raise PermanentError(told).redacted(secrets) from None
    return redact_receipt(receipt, secrets)


def secrets_in(config: Strict) -> tuple[str, ...]:
    """The secrets of a channel in all forms in which a service might repeat them.

    An address that is a secret is one in its parts, too: services show the path they were asked for.
    """
    declared = secrets_of(config)
    parts = [part for secret in declared if ":/" in secret for part in _parts(secret)]
    return forms_of([*declared, *parts])


def _parts(url: str) -> Iterator[str]:
    split = urlsplit(url)
    for text in (split.path, split.query, split.fragment, split.netloc.rpartition("@")[0]):
        if len(text) >= _SHORTEST_PART:
            yield text
        yield from (part for part in re.split(r"[/:;,&=?]", text) if len(part) >= _SHORTEST_PART)
