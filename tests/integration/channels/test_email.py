"""Mail over real SMTP: TLS in both forms, logins, refusals, and nothing alive in the HTML (SEC-04)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from shared.channels.deliver import deliver
from shared.channels.errors import PermanentError, TemporaryError
from shared.channels.record import Receipt, Tools
from shared.channels.registry import configuration
from shared.channels.tools import build_tools
from shared.domain.clock import SystemClock
from shared.domain.notification import Event
from shared.http.guard import AddressPolicy
from tests.integration.channels.conftest import NAME, SHOWN, Authority, outgoing

PASSWORD = "p@ss wörd"


class Post:
    """A mail server's inside: keeps what comes, refuses whom it is told to."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.refused: dict[str, str] = {}
        self.data_answer = "250 2.0.0 queued as 1234"
        self.encrypted: list[bool] = []

    async def handle_RCPT(  # noqa: N802 aiosmtpd calls it so, with all of these
        self,
        server: SMTP,  # noqa: ARG002
        session: Session,  # noqa: ARG002
        envelope: Envelope,
        address: str,
        options: list[str],  # noqa: ARG002
    ) -> str:
        if answer := self.refused.get(address):
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.data_answer.startswith("2"):
            assert isinstance(envelope.content, bytes)
            self.mails.append(message_from_bytes(envelope.content, policy=default))
            self.recipients += envelope.rcpt_tos
            self.encrypted.append(
                session.ssl is not None or bool(server.transport and server.transport.get_extra_info("ssl_object"))
            )
        return self.data_answer


def _authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
    is_right = data.login == b"tocsin" and data.password == PASSWORD.encode()
    return AuthResult(success=is_right, handled=is_right)


@asynccontextmanager
async def server(post: Post, context: ssl.SSLContext | None, *, security: str) -> AsyncIterator[int]:
    """An SMTP server on a port of its own."""

    def session() -> SMTP:
        return SMTP(
            post,
            tls_context=context if security == "starttls" else None,
            authenticator=_authenticate,
            auth_require_tls=security == "starttls",
            enable_SMTPUTF8=True,
        )

    loop = asyncio.get_running_loop()
    running = await loop.create_server(session, "127.0.0.1", 0, ssl=context if security == "tls" else None)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()


@pytest.fixture
def context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.root.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@pytest.fixture
def tools(authority: Authority) -> Tools:
    return build_tools(AddressPolicy(allow_private=True), SystemClock(), ca_file=authority.ca_file)


def config(port: int, security: str, **fields: Any) -> dict[str, Any]:
    smtp = {"host": "127.0.0.1", "port": port, "security": security, "sender": "tocsin@ops.example", **fields}
    return {"to": ["oncall@shop.example"], "smtp": smtp}


async def send(tools: Tools, config: dict[str, Any], **fields: Any) -> Receipt:
    return await deliver("email", configuration("email", config), outgoing(**fields), tools)


LOGIN = {"username": "tocsin", "password": PASSWORD}


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_mail_goes_out_encrypted_with_a_login(security: str, tools: Tools, context: ssl.SSLContext) -> None:
    post = Post()
    async with server(post, context, security=security) as port:
        receipt = await send(tools, config(port, security, **(LOGIN if security == "starttls" else {})))
    assert (receipt.status_code, receipt.excerpt) == (250, "2.0.0 queued as 1234")
    (mail,) = post.mails
    assert post.encrypted == [True]
    assert post.recipients == ["oncall@shop.example"]
    assert mail["From"] == "Tocsin <tocsin@ops.example>"
    assert mail["Subject"] == f"DOWN: {NAME}"
    assert mail["Message-ID"] == "<00000000-0000-0000-0000-000000000007@ops.example>"
    assert mail["References"] == "<00000000-0000-0000-0000-000000000001@ops.example>"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_both_parts_read_as_written_and_nothing_in_them_is_alive(tools: Tools) -> None:
    post = Post()
    async with server(post, None, security="none") as port:
        await send(tools, config(port, "none"))
        hostile = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) <svg onload=x>"
        await send(tools, config(port, "none"), name=hostile, message=hostile)
    first = post.mails[0].get_body(("plain",))
    assert first is not None
    assert NAME in first.get_content()
    assert SHOWN in first.get_content().replace("\r\n", "\n")
    for mail, wanted in zip(post.mails, (NAME, hostile), strict=True):
        part = mail.get_body(("html",))
        assert part is not None
        page = _Page()
        page.feed(part.get_content())
        assert page.tags <= {"html", "head", "meta", "body", "div", "h1", "table", "tr", "th", "td"}
        assert page.attributes <= {"charset", "style", "align", "valign"}
        assert wanted in page.text


async def test_a_line_break_in_a_name_makes_no_header(tools: Tools) -> None:
    post = Post()
    async with server(post, None, security="none") as port:
        await send(tools, config(port, "none"), name="x\r\nBcc: eve@evil.example")
    (mail,) = post.mails
    assert mail["Bcc"] is None
    assert mail["Subject"] == "DOWN: x Bcc: eve@evil.example"
    assert post.recipients == ["oncall@shop.example"]


async def test_a_server_without_starttls_gets_neither_mail_nor_password(tools: Tools) -> None:
    post = Post()
    async with server(post, None, security="none") as port:
        with pytest.raises(PermanentError, match="STARTTLS"):
            await send(tools, config(port, "starttls", **LOGIN))
    assert post.mails == []


async def test_a_certificate_of_somebody_else_is_refused(context: ssl.SSLContext) -> None:
    post = Post()
    untrusting = build_tools(AddressPolicy(allow_private=True), SystemClock())
    for security in ("tls", "starttls"):
        async with server(post, context, security=security) as port:
            with pytest.raises(TemporaryError, match=r"certificate|TLS"):
                await send(untrusting, config(port, security))
    assert post.mails == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [("451 try later", TemporaryError), ("554 no", PermanentError)],
    ids=["temporary", "permanent"],
)
async def test_what_the_server_answers_decides_whether_to_try_again(
    answer: str, error: type[Exception], tools: Tools
) -> None:
    post = Post()
    post.data_answer = answer
    async with server(post, None, security="none") as port:
        with pytest.raises(error, match=answer.partition(" ")[2]):
            await send(tools, config(port, "none"))
        post.data_answer = "250 OK"
        post.refused = {"oncall@shop.example": answer}
        with pytest.raises(error, match="recipients were refused"):
            await send(tools, config(port, "none"))


async def test_when_some_recipients_are_to_be_tried_again_the_mail_may_come_twice(tools: Tools) -> None:
    post = Post()
    post.refused = {"b@shop.example": "450 greylisted"}
    async with server(post, None, security="none") as port:
        wanted = {**config(port, "none"), "to": ["a@shop.example", "b@shop.example"]}
        with pytest.raises(TemporaryError) as raised:
            await send(tools, wanted)
        assert raised.value.is_uncertain
        post.refused = {"b@shop.example": "550 unknown"}
        receipt = await send(tools, wanted)
    assert "b@shop.example" in (receipt.excerpt or "")
    assert post.recipients == ["a@shop.example", "a@shop.example"]


async def test_a_wrong_password_is_nothing_to_repeat(tools: Tools, context: ssl.SSLContext) -> None:
    async with server(Post(), context, security="starttls") as port:
        with pytest.raises(PermanentError, match="refused the login") as raised:
            await send(tools, config(port, "starttls", username="tocsin", password="wrong-SECRET"))
    assert "SECRET" not in str(raised.value)


async def test_the_operators_server_sends_where_a_channel_has_none(
    authority: Authority, context: ssl.SSLContext
) -> None:
    post = Post()
    async with server(post, context, security="tls") as port:
        # Users may not reach private addresses here; the operator's own server stands at one.
        tools = build_tools(
            AddressPolicy(),
            SystemClock(),
            smtp_url=f"smtps://127.0.0.1:{port}",
            smtp_from="alerts@platform.example",
            ca_file=authority.ca_file,
        )
        await send(tools, {"to": ["oncall@shop.example"]})
        with pytest.raises(PermanentError, match="not a public address"):
            await send(tools, config(port, "tls"))
    assert post.mails[0]["From"] == "Tocsin <alerts@platform.example>"
    with pytest.raises(PermanentError, match="TOCSIN_SMTP_URL"):
        await send(build_tools(AddressPolicy(), SystemClock()), {"to": ["oncall@shop.example"]})


async def test_a_server_that_is_not_there_is_tried_again(tools: Tools, unused_port: int) -> None:
    with pytest.raises(TemporaryError, match="refused the connection") as raised:
        await send(tools, config(unused_port, "none"), event=Event.RESOLVED)
    assert not raised.value.is_uncertain
