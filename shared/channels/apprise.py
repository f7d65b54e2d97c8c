"""Any service that Apprise knows, where the operator allows it.

Apprise brings its own HTTP client, so the address guard can only look at the host before: a name that changes its
address in between gets past it. That is why it is the operator's decision, and off by default.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import Field

from shared.channels.errors import PermanentError, TemporaryError
from shared.channels.record import ChannelKind, Outgoing, Receipt, Tools
from shared.channels.style import is_over
from shared.domain.notification import Notification, Words
from shared.domain.spec import Secret, Strict
from shared.http.errors import BlockedError, HttpError
from shared.http.stopwatch import Stopwatch

_OF_THIS_MACHINE = frozenset({"dbus", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows"})
"""Services that leave no trace outside of the worker, or act on it."""
_READING = frozenset({"keyfile", "pgpprv", "pgppub", "subfile", "wkd"})
"""Arguments that name a file of the worker, or an address beside that of the service."""


class AppriseConfig(Strict):
    """``url`` as Apprise describes it for the service, for example ``matrixs://user:token@host/#room``."""

    url: Annotated[
        str, Field(min_length=4, max_length=2048, pattern=r"^[A-Za-z][A-Za-z0-9]*:/{2}[^\x00-\x20]+$"), Secret()
    ]


def render(_: AppriseConfig, outgoing: Outgoing) -> tuple[Words, str]:
    return outgoing.words, _mood(outgoing.notification)


async def send(config: AppriseConfig, message: tuple[Words, str], tools: Tools) -> Receipt:
    if not tools.allow_apprise:
        raise PermanentError("Apprise is switched off here: the operator can set TOCSIN_APPRISE")
    service = await asyncio.to_thread(_service, config.url)
    for host in _hosts(service):
        await _check(host, tools)
    words, mood = message
    # A thread cannot be cancelled: when the deadline has passed it may still send.
    if not await asyncio.to_thread(_notify, service, words, mood):
        raise TemporaryError("Apprise could not deliver it; it does not say why", is_uncertain=True)
    return Receipt()


def _service(url: str) -> Any:
    try:
        apprise = import_module("apprise")
    except ImportError:
        raise PermanentError("Apprise is not installed here: pip install 'tocsin[apprise]'") from None
    if url.partition(":")[0].lower() in _OF_THIS_MACHINE:
        raise PermanentError("this service acts on the worker's own machine")
    names = {name.lower() for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True)}
    if read := names & _READING:
        raise PermanentError(f"{min(read)}: what lies elsewhere is not read")
    service = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if service is None:
        raise PermanentError("Apprise does not understand this URL")
    # Of some services a template is a name, of others a file or an address, which the guard would not see.
    if any(isinstance(value, apprise.AppriseAttachment) and len(value) for value in vars(service).values()):
        raise PermanentError("template: what lies elsewhere is not read")
    return service


def _hosts(service: Any) -> list[str]:
    """The hosts that the URL names; services with an address of their own name none."""
    if not any("{host}" in template or "{domain}" in template for template in service.templates):
        return []
    return list(dict.fromkeys(host for name in ("host", "smtp_host") if (host := getattr(service, name, None))))


async def _check(host: str, tools: Tools) -> None:
    try:
        await tools.door.addresses(host, "auto", Stopwatch(tools.door.monotonic))
    except BlockedError as error:
        raise PermanentError(str(error)) from None
    except HttpError as error:
        raise TemporaryError(str(error)) from None


def _notify(service: Any, words: Words, mood: str) -> bool:
    # Through its hub and never the service itself: only there text becomes the markup that the service reads.
    hub = import_module("apprise").Apprise()
    hub.add(service)
    body = words.lines or words.title
    return bool(hub.notify(title=words.title, body=body, notify_type=mood, body_format="text"))


def _mood(notification: Notification) -> str:
    incident = notification.data.incident
    if incident is None:
        return "info"
    if is_over(notification):
        return "success"
    return "warning" if incident.severity == "degraded" else "failure"


def _destination(config: AppriseConfig) -> str:
    return f"{config.url.partition(':')[0]}://…"


CHANNEL = ChannelKind("apprise", AppriseConfig, render, send, _destination)
