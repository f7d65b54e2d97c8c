"""Mail over SMTP, through a socket from the guarded door."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Annotated, Literal, Self

import aiosmtplib
from aiosmtplib.errors import (
    SMTPAuthenticationError,
    SMTPConnectError,
    SMTPException,
    SMTPRecipientsRefused,
    SMTPResponseException,
    SMTPServerDisconnected,
    SMTPTimeoutError,
)
from aiosmtplib.response import SMTPResponse
from pydantic import AfterValidator, Field, model_validator

from shared.channels.errors import PermanentError, TemporaryError
from shared.channels.mail_text import compose
from shared.channels.record import ChannelKind, Outgoing, Receipt, Tools
from shared.domain.mail_server import MailServer
from shared.domain.notification import shortened
from shared.domain.spec import Secret, Strict
from shared.domain.url import normalise_host
from shared.http.door import Door
from shared.http.errors import BlockedError, HttpError, connect_error
from shared.http.stopwatch import Stopwatch
from shared.http.tls import TlsSettings, shared_context

MailAddress = Annotated[str, Field(max_length=254, pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+$")]
Host = Annotated[str, Field(max_length=253), AfterValidator(normalise_host)]
Security = Literal["tls", "starttls", "none"]
_NEED_TLS = frozenset({"tls", "starttls"})


class SmtpConfig(Strict):
    """A mail server of your own. ``starttls`` demands it: nothing is sent where it is not offered."""

    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Security = "starttls"
    username: Annotated[str | None, Field(min_length=1, max_length=255)] = None
    password: Annotated[str | None, Field(max_length=1000), Secret()] = None
    sender: Annotated[MailAddress, Field(description="The From address.")]

    @model_validator(mode="after")
    def _login(self) -> Self:
        if (self.username is None) is not (self.password is None):
            raise ValueError("password: a user name and a password go together")
        if self.password is not None and self.security not in _NEED_TLS:
            raise ValueError("password: it would be sent in the clear; use tls or starttls")
        return self


class EmailConfig(Strict):
    """Without ``smtp`` the operator's mail server sends."""

    to: Annotated[list[MailAddress], Field(min_length=1, max_length=20)]
    smtp: SmtpConfig | None = None


def render(_: EmailConfig, outgoing: Outgoing) -> Outgoing:
    """Whose server sends, and so the From address, is known only when it is sent: see ``compose``."""
    return outgoing


async def send(config: EmailConfig, outgoing: Outgoing, tools: Tools) -> Receipt:
    server, sender, door = _server(config, tools)
    mail = compose(sender, config.to, outgoing)
    try:
        return await _transfer(server, door, mail, tools.timeout_seconds)
    except SMTPRecipientsRefused as error:
        raise _refused(
            {each.recipient: SMTPResponse(each.code, each.message) for each in error.recipients}
        ) from None
    except SMTPAuthenticationError as error:
        raise _answered(error.code, f"the mail server refused the login: {error.message}") from None
    except SMTPResponseException as error:
        raise _answered(error.code, f"the mail server answered {error.code} {error.message}") from None
    except (SMTPConnectError, SMTPTimeoutError, SMTPServerDisconnected) as error:
        is_uncertain = not isinstance(error, SMTPConnectError)
        raise TemporaryError(f"the mail server: {error}", is_uncertain=is_uncertain) from None
    except SMTPException as error:
        raise PermanentError(f"the mail server cannot do it: {error}") from None
    except ssl.SSLError as error:
        raise TemporaryError(f"TLS with the mail server failed: {error.reason or 'unknown'}") from None


def _server(config: EmailConfig, tools: Tools) -> tuple[MailServer, str, Door]:
    if own := config.smtp:
        return MailServer(own.host, own.port, own.security, own.username, own.password), own.sender, tools.door
    if tools.mail_server is None or tools.mail_from is None:
        raise PermanentError(
            "there is no mail server: give the channel one, or set TOCSIN_SMTP_URL and TOCSIN_SMTP_FROM"
        )
    return tools.mail_server, tools.mail_from, tools.trusted_door


async def _transfer(server: MailServer, door: Door, mail: EmailMessage, timeout: float) -> Receipt:
    context = shared_context(TlsSettings(ca_file=door.ca_file))
    client = aiosmtplib.SMTP(
        hostname=server.host,
        sock=await _connect(server, door),
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        tls_context=context if server.security in _NEED_TLS else None,
        username=server.username,
        password=server.password,
        local_hostname="tocsin",
        timeout=timeout,
    )
    async with client:
        refused, answer = await client.send_message(mail)
    if any(each.code < 500 for each in refused.values()):
        raise _refused(refused, is_partly_sent=True)
    note = f"; refused: {_listed(refused)}" if refused else ""
    return Receipt(250, shortened(answer + note, 300))


async def _connect(server: MailServer, door: Door) -> socket.socket:
    """A connected socket to one of the addresses that the door lets through."""
    try:
        addresses = await door.addresses(server.host, "auto", Stopwatch(door.monotonic))
    except BlockedError as error:
        raise PermanentError(str(error)) from None
    except HttpError as error:
        raise TemporaryError(str(error)) from None
    failures = []
    for address in addresses:
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, (address, server.port))
            return connection
        except OSError as error:
            connection.close()
            failures.append(str(connect_error(error, f"{address}:{server.port}")))
        except BaseException:
            connection.close()
            raise
    raise TemporaryError("; ".join(failures))


def _answered(code: int, message: str) -> TemporaryError | PermanentError:
    receipt = Receipt(code, None)
    return PermanentError(message, receipt) if code >= 500 else TemporaryError(message, receipt)


def _refused(
    recipients: Mapping[str, SMTPResponse], *, is_partly_sent: bool = False
) -> TemporaryError | PermanentError:
    """Some recipients were refused: once they are all to be refused for good, trying again helps nobody."""
    message = f"recipients were refused: {_listed(recipients)}"
    if any(answer.code < 500 for answer in recipients.values()):
        return TemporaryError(message, Receipt(450), is_uncertain=is_partly_sent)
    return PermanentError(message, Receipt(550))


def _listed(recipients: Mapping[str, SMTPResponse]) -> str:
    return "; ".join(f"{name}: {answer.code} {answer.message}" for name, answer in recipients.items())


def _destination(config: EmailConfig) -> str:
    return ", ".join(config.to)


CHANNEL = ChannelKind("email", EmailConfig, render, send, _destination)
