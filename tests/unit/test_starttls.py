"""The preludes before TLS, over scripts of bytes: complete, in pieces, refused, cut short and endless."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.checks_network import STARTTLS_PORTS, StartTls
from shared.http.errors import TargetError
from shared.http.starttls import LIMIT, Dialogue

FEATURES = (
    b"<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>"
)
STREAM = b"<?xml version='1.0'?><stream:stream from='a' xmlns:stream='http://etherx.jabber.org/streams'>"


def mysql_greeting(capabilities: int = 0xFFFF) -> bytes:
    body = b"\x0a8.4.0\x00" + bytes(4) + b"saltsalt\x00" + capabilities.to_bytes(2, "little") + bytes(20)
    return len(body).to_bytes(3, "little") + b"\x00" + body


LDAP_OK = bytes.fromhex("300c02010178070a010004000400")
GOOD: dict[StartTls, list[bytes]] = {
    "smtp": [
        b"220-mail.example\r\n220 ESMTP ready\r\n",
        b"250-mail.example\r\n250-SIZE 1\r\n250-starttls\r\n250 HELP\r\n",
        b"220 go ahead\r\n",
    ],
    "imap": [b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n", b"* BYE not really\r\nt1 OK begin\r\n"],
    "pop3": [b"+OK ready\r\n", b"+OK begin\r\n"],
    "ftp": [b"220-Welcome\r\n220-to\r\n220 ftp\r\n", b"234 AUTH TLS ok\r\n"],
    "postgres": [b"S"],
    "mysql": [mysql_greeting()],
    "ldap": [LDAP_OK],
    "xmpp": [STREAM + FEATURES, b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"],
}
SENT: dict[StartTls, list[bytes]] = {
    "smtp": [b"EHLO tocsin\r\n", b"STARTTLS\r\n"],
    "imap": [b"t1 STARTTLS\r\n"],
    "pop3": [b"STLS\r\n"],
    "ftp": [b"AUTH TLS\r\n"],
    "postgres": [bytes.fromhex("0000000804d2162f")],
    "mysql": [bytes.fromhex("20000001008a0000000000012d") + bytes(23)],
    "ldap": [b"\x30\x1d\x02\x01\x01\x77\x18\x80\x16" + b"1.3.6.1.4.1.1466.20037"],
    "xmpp": [
        (
            b"<?xml version='1.0'?><stream:stream to='mail.example' version='1.0' xmlns='jabber:client' "
            b"xmlns:stream='http://etherx.jabber.org/streams'>"
        ),
        b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
    ],
}
ALL = sorted(STARTTLS_PORTS)


def talk(protocol: StartTls, pieces: Iterable[bytes]) -> tuple[list[bytes], bytes]:
    """What is said to a server that says these pieces and then closes, and what it said too much."""
    dialogue = Dialogue(protocol, "mail.example")
    steps = dialogue.steps()
    said = [next(steps)]
    script = iter(pieces)
    try:
        while True:
            said.append(steps.send(next(script, b"")))
    except StopIteration as done:
        said.append(done.value)
    return [each for each in said if each], bytes(dialogue.unread)


def refusal(protocol: StartTls, pieces: Iterable[bytes]) -> str:
    with pytest.raises(TargetError) as caught:
        talk(protocol, pieces)
    assert caught.value.error.kind == "protocol_error"
    return caught.value.error.message


def ends_well(protocol: StartTls, pieces: Iterable[bytes]) -> bool:
    """Whether a conversation comes to TLS or to an error that is data."""
    try:
        talk(protocol, pieces)
    except TargetError as error:
        return error.error.kind == "protocol_error"
    return True


@pytest.mark.parametrize("protocol", ALL)
def test_every_protocol_comes_to_the_handshake(protocol: StartTls) -> None:
    assert talk(protocol, GOOD[protocol]) == (SENT[protocol], b"")


@pytest.mark.parametrize("protocol", ALL)
def test_bytes_may_come_one_by_one(protocol: StartTls) -> None:
    single = [bytes([byte]) for piece in GOOD[protocol] for byte in piece]
    assert talk(protocol, single) == (SENT[protocol], b"")


@pytest.mark.parametrize("protocol", ALL)
def test_a_server_that_goes_away_names_the_step(protocol: StartTls) -> None:
    message = refusal(protocol, [GOOD[protocol][0][:-1]])
    assert message.startswith(f"{protocol}, the ")
    assert "closed the connection" in message


@pytest.mark.parametrize("protocol", ["smtp", "imap", "pop3", "ftp", "xmpp"])
def test_a_server_that_never_comes_to_the_point_is_left(protocol: StartTls) -> None:
    assert f"more than {LIMIT} bytes" in refusal(protocol, (b"220-x" * 1000 for _ in range(100)))


@pytest.mark.parametrize("protocol", ALL)
def test_what_follows_in_plain_text_is_kept_to_be_refused(protocol: StartTls) -> None:
    *before, last = GOOD[protocol]
    assert talk(protocol, [*before, last + b"x"])[1] == b"x"


@pytest.mark.parametrize(
    ("protocol", "pieces", "word"),
    [
        ("smtp", [b"554 go away\r\n"], "the greeting: code 554 ('554 go away')"),
        ("smtp", [b"220 hi\r\n", b"502 no\r\n"], "the answer to EHLO: code 502"),
        ("smtp", [b"220 hi\r\n", b"250 SIZE\r\n"], "does not offer STARTTLS"),
        ("smtp", [b"220 hi\r\n", b"250 STARTTLS\r\n", b"454 later\r\n"], "the answer to STARTTLS: code 454"),
        ("imap", [b"* BYE busy\r\n"], "not ready"),
        ("imap", [b"* PREAUTH hello\r\n"], "not ready"),
        ("imap", [b"* OK hi\r\n", b"t1 NO not here\r\n"], "refused ('t1 NO not here')"),
        ("pop3", [b"-ERR busy\r\n"], "not ready"),
        ("pop3", [b"+OK\r\n", b"-ERR what\r\n"], "refused"),
        ("ftp", [b"421 busy\r\n"], "code 421"),
        ("ftp", [b"220 hi\r\n", b"530 log in first\r\n"], "the answer to AUTH TLS: code 530"),
        ("postgres", [b"N"], "does not offer TLS"),
        ("postgres", [b"HTTP/1.1 400"], "this is not PostgreSQL ('HTTP/1.1 400')"),
        ("mysql", [mysql_greeting(0xF7FF)], "does not offer TLS"),
        ("mysql", [b"\x10\x00\x00\x00\xff\x69\x04too many hosts"[:20]], "refused the connection"),
        ("mysql", [b"\x01\x00\x00\x00x"], "this is not MySQL"),
        ("ldap", [bytes.fromhex("300c02010178070a010104000400")], "refused with result code 1"),
        ("ldap", [b"HTTP/1.1 400 Bad Request"], "this is not LDAP"),
        ("ldap", [b"\x30\x84\xff\xff\xff\xff"], "this is not LDAP"),
        ("ldap", [b"\x30\x02\x02\x7f"], "this is not LDAP"),
        ("ldap", [bytes.fromhex("300c020101787f0a010004000400")], "this is not LDAP"),
        ("xmpp", [STREAM + b"<stream:features></stream:features>"], "does not offer STARTTLS"),
        ("xmpp", [STREAM + FEATURES, b"<failure xmlns='x'/>"], "refused"),
    ],
)
def test_what_a_server_does_instead_is_said(protocol: StartTls, pieces: list[bytes], word: str) -> None:
    assert word in refusal(protocol, pieces)


@given(st.sampled_from(ALL), st.data())
def test_no_answer_breaks_a_prelude(protocol: StartTls, data: st.DataObject) -> None:
    good = st.sampled_from([piece for pieces in GOOD.values() for piece in pieces])
    pieces = data.draw(st.lists(good | st.binary(min_size=1, max_size=60), max_size=8))
    assert ends_well(protocol, pieces)


@given(st.sampled_from(ALL), st.integers(0, 10_000), st.integers(0, 255))
def test_no_single_changed_byte_breaks_a_prelude(protocol: StartTls, place: int, byte: int) -> None:
    pieces = [bytearray(piece) for piece in GOOD[protocol]]
    changed = pieces[place % len(pieces)]
    changed[place % len(changed)] = byte
    assert ends_well(protocol, map(bytes, pieces))


@pytest.mark.parametrize(
    "greeting",
    [
        pytest.param(b"220-Welcome\r\n250 years of service\r\n220 ready\r\n", id="another number within"),
        pytest.param(b"220-Welcome\r\n 220 indented\r\n\r\n220 ready\r\n", id="blank and indented lines"),
        pytest.param(b"220-Welcome\r\n220-220 more\r\n220 ready\r\n", id="its own number within"),
        pytest.param(b"220\r\n", id="nothing but the code"),
    ],
)
@pytest.mark.parametrize("protocol", ["smtp", "ftp"])
def test_a_reply_of_several_lines_ends_with_its_own_code(protocol: StartTls, greeting: bytes) -> None:
    _, *rest = GOOD[protocol]
    assert talk(protocol, [greeting, *rest]) == (SENT[protocol], b"")


def test_a_reply_without_a_code_is_no_reply() -> None:
    assert "no reply with a code ('hello')" in refusal("smtp", [b"hello\r\n"])
