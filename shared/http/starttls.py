"""How plain-text protocols are asked for TLS: one prelude each, as a state machine over bytes without any IO.

A prelude is a generator: it yields what to send and is sent what has come in (empty when the peer is gone). What
it returns is sent last, before the handshake. ``TargetError`` says what the server did instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from shared.domain.checks_network import StartTls
from shared.domain.comparison import bounded
from shared.domain.errors import CheckError, ErrorKind
from shared.http.errors import TargetError
from shared.http.inbox import Inbox
from shared.http.wire import Wire

LIMIT = 65_536
"""Bytes a server may say before it agrees to TLS."""

Steps = Generator[bytes, bytes, bytes]


class Dialogue:
    """What one prelude has read and not used; ``waits_for`` names the step for messages."""

    def __init__(self, protocol: StartTls, host: str) -> None:
        self.protocol, self.host = protocol, host
        self.waits_for = "the greeting"
        self.unread = bytearray()
        self._left = LIMIT

    def steps(self) -> Steps:
        return _PRELUDES[self.protocol](self)

    def refusal(self, told: str, said: bytes | bytearray = b"") -> TargetError:
        """A protocol error in the step that is waited for, with the beginning of what the server said."""
        text = bytes(said[:200]).decode("utf-8", "replace").strip()
        quote = f" ({bounded(text, 100)!r})" if text else ""
        return TargetError(ErrorKind.PROTOCOL_ERROR, f"{self.protocol}, {self.waits_for}: {told}{quote}")

    def more(self, send: bytes = b"") -> Generator[bytes, bytes, None]:
        data = yield send
        self._left -= len(data)
        if not data:
            raise self.refusal("the server closed the connection", self.unread)
        if self._left < 0:
            raise self.refusal(f"the server sent more than {LIMIT} bytes", self.unread)
        self.unread += data

    def take(self, count: int, send: bytes = b"") -> Generator[bytes, bytes, bytes]:
        """Exactly so many bytes."""
        while send or len(self.unread) < count:
            yield from self.more(send)
            send = b""
        taken = bytes(self.unread[:count])
        del self.unread[:count]
        return taken

    def until(self, end: bytes, send: bytes = b"") -> Generator[bytes, bytes, bytes]:
        """Everything up to and including ``end``."""
        searched = 0
        while send or (found := self.unread.find(end, searched)) < 0:
            searched = max(0, len(self.unread) - len(end) + 1)
            yield from self.more(send)
            send = b""
        return (yield from self.take(found + len(end)))

    def reply(self, send: bytes = b"") -> Generator[bytes, bytes, tuple[int, bytes]]:
        """Code and text of a numbered reply (SMTP, FTP).

        One of several lines has ``-`` behind its code, and ends with the line that has the same code and a blank;
        between those lines may begin as they like, with other numbers too (RFC 959 section 4.2).
        """
        text = yield from self.until(b"\n", send)
        code = text[:3]
        if not code.isdigit():
            raise self.refusal("no reply with a code", text)
        line = text
        while line[:3] != code or line[3:4] == b"-":
            line = yield from self.until(b"\n")
            text += line
        return int(code), text


def _smtp(talk: Dialogue) -> Steps:
    code, text = yield from talk.reply()
    if code != 220:
        raise talk.refusal(f"code {code}", text)
    talk.waits_for = "the answer to EHLO"
    code, text = yield from talk.reply(b"EHLO tocsin\r\n")
    if code != 250:
        raise talk.refusal(f"code {code}", text)
    if b"STARTTLS" not in text.upper():
        raise talk.refusal("the server does not offer STARTTLS", text)
    talk.waits_for = "the answer to STARTTLS"
    code, text = yield from talk.reply(b"STARTTLS\r\n")
    if code != 220:
        raise talk.refusal(f"code {code}", text)
    return b""


def _ftp(talk: Dialogue) -> Steps:
    code, text = yield from talk.reply()
    if code != 220:
        raise talk.refusal(f"code {code}", text)
    talk.waits_for = "the answer to AUTH TLS"
    code, text = yield from talk.reply(b"AUTH TLS\r\n")
    if code != 234:
        raise talk.refusal(f"code {code}", text)
    return b""


def _imap(talk: Dialogue) -> Steps:
    line = yield from talk.until(b"\n")
    if not line.upper().startswith(b"* OK"):
        raise talk.refusal("not ready", line)
    talk.waits_for = "the answer to STARTTLS"
    line = yield from talk.until(b"\n", b"t1 STARTTLS\r\n")
    while not line.startswith(b"t1 "):
        line = yield from talk.until(b"\n")
    if not line.upper().startswith(b"T1 OK"):
        raise talk.refusal("refused", line)
    return b""


def _pop3(talk: Dialogue) -> Steps:
    line = yield from talk.until(b"\n")
    if not line.startswith(b"+OK"):
        raise talk.refusal("not ready", line)
    talk.waits_for = "the answer to STLS"
    line = yield from talk.until(b"\n", b"STLS\r\n")
    if not line.startswith(b"+OK"):
        raise talk.refusal("refused", line)
    return b""


def _postgres(talk: Dialogue) -> Steps:
    talk.waits_for = "the answer to SSLRequest"
    answer = yield from talk.take(1, (8).to_bytes(4) + (80877103).to_bytes(4))
    if answer == b"N":
        raise talk.refusal("the server does not offer TLS")
    if answer != b"S":
        raise talk.refusal("this is not PostgreSQL", answer + talk.unread)
    return b""


_MYSQL_PROTOCOL_41, _MYSQL_SSL, _MYSQL_SECURE_CONNECTION = 0x200, 0x800, 0x8000
_MYSQL_UTF8 = 45
_MYSQL_MAX_PACKET = 1 << 24


def _mysql(talk: Dialogue) -> Steps:
    header = yield from talk.take(4)
    packet = yield from talk.take(int.from_bytes(header[:3], "little"))
    if packet[:1] == b"\xff":
        raise talk.refusal("the server refused the connection", packet[3:])
    version_end = packet.find(b"\0", 1)
    # Behind the version: thread id (4), first half of the salt (8), a filler (1), lower capabilities (2).
    capabilities = packet[version_end + 14 : version_end + 16]
    if packet[:1] != b"\x0a" or version_end < 0 or len(capabilities) != 2:
        raise talk.refusal("this is not MySQL", packet)
    if not int.from_bytes(capabilities, "little") & _MYSQL_SSL:
        raise talk.refusal("the server does not offer TLS")
    wanted = _MYSQL_PROTOCOL_41 | _MYSQL_SSL | _MYSQL_SECURE_CONNECTION
    request = wanted.to_bytes(4, "little") + _MYSQL_MAX_PACKET.to_bytes(4, "little") + bytes([_MYSQL_UTF8])
    request += bytes(23)
    return len(request).to_bytes(3, "little") + bytes([header[3] + 1 & 0xFF]) + request


_LDAP_START_TLS = b"1.3.6.1.4.1.1466.20037"
_BER_INTEGER, _BER_ENUMERATED, _BER_SEQUENCE, _LDAP_EXTENDED_RESPONSE = 0x02, 0x0A, 0x30, 0x78


def _ldap(talk: Dialogue) -> Steps:
    talk.waits_for = "the answer to StartTLS"
    name = bytes([0x80, len(_LDAP_START_TLS)]) + _LDAP_START_TLS
    operation = b"\x02\x01\x01" + bytes([0x77, len(name)]) + name
    head = yield from talk.take(2, bytes([_BER_SEQUENCE, len(operation)]) + operation)
    size = head[1]
    if size & 0x80:
        size = int.from_bytes((yield from talk.take(min(size & 0x7F, 4))))
    if head[0] != _BER_SEQUENCE or size > LIMIT:
        raise talk.refusal("this is not LDAP", head)
    _, rest = _ber(talk, (yield from talk.take(size)), _BER_INTEGER)
    response, _ = _ber(talk, rest, _LDAP_EXTENDED_RESPONSE)
    code, _ = _ber(talk, response, _BER_ENUMERATED)
    if code != b"\0":
        raise talk.refusal(f"refused with result code {int.from_bytes(code)}")
    return b""


def _ber(talk: Dialogue, data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Content of the value at the beginning, and what follows it."""
    if len(data) < 2 or data[0] != tag:
        raise talk.refusal("this is not LDAP", data)
    start, size = 2, data[1]
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start])
    if start + size > len(data):
        raise talk.refusal("this is not LDAP", data)
    return data[start : start + size], data[start + size :]


def _xmpp(talk: Dialogue) -> Steps:
    hello = (
        f"<?xml version='1.0'?><stream:stream to='{talk.host}' version='1.0' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    talk.waits_for = "the stream features"
    features = yield from talk.until(b"</stream:features>", hello.encode())
    if b"urn:ietf:params:xml:ns:xmpp-tls" not in features:
        raise talk.refusal("the server does not offer STARTTLS", features)
    talk.waits_for = "the answer to starttls"
    answer = yield from talk.until(b">", b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    if not answer.lstrip().startswith(b"<proceed"):
        raise talk.refusal("refused", answer)
    if not answer.endswith(b"/>"):
        yield from talk.until(b"</proceed>")
    return b""


_PRELUDES: dict[StartTls, Callable[[Dialogue], Steps]] = {
    "smtp": _smtp,
    "imap": _imap,
    "pop3": _pop3,
    "ftp": _ftp,
    "postgres": _postgres,
    "mysql": _mysql,
    "ldap": _ldap,
    "xmpp": _xmpp,
}


async def ask_for_tls(wire: Wire, talk: Dialogue) -> None:
    """Bring a connection to where the handshake begins; raises ``TargetError``. The caller sets the deadline."""
    inbox = Inbox()
    wire.attach(inbox)
    last = await _walk(talk.steps(), wire, inbox)
    if talk.unread or inbox.waiting:
        # Whoever sits on the line could have put words in front of the encrypted ones.
        raise talk.refusal("the server said more in plain text than it should", talk.unread)
    if last:
        wire.send(last)


async def _walk(steps: Steps, wire: Wire, inbox: Inbox) -> bytes:
    send = next(steps)
    while True:
        if send:
            wire.send(send)
        try:
            send = steps.send(await inbox.more())
        except StopIteration as done:
            last: bytes = done.value
            return last


def prelude_timeout(talk: Dialogue, timeout_seconds: float) -> CheckError:
    """The error of an attempt whose time ran out before TLS began."""
    told = f"timed out after {timeout_seconds:g} s before TLS, {talk.protocol}: waiting for {talk.waits_for}"
    return CheckError(ErrorKind.TIMEOUT, told)
