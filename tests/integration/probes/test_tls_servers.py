"""Handshakes with old, odd and unwilling servers: what clients talk to is up, and failures say what to mend."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.clock import SystemClock, to_datetime
from shared.domain.result import ResultStatus
from tests.integration.probes.conftest import HERE, Authority, check, check_tls
from tests.integration.probes.conversations import speaking
from tests.integration.probes.targets import Names, answer, blocking_tls, serve
from tests.integration.probes.test_tls import OK, both, demanding, kind, named


@pytest.mark.parametrize("cipher", ["ECDHE-RSA-AES128-SHA", "AES128-GCM-SHA256", "AES256-SHA"])
async def test_old_ciphers_that_clients_still_talk_are_up(tmp_path: Path, cipher: str) -> None:
    root = trustme.CA(key_type=trustme.KeyType.RSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    root.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA).configure_cert(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher)
    ca_file = tmp_path / "root.pem"
    root.cert_pem.write_to_path(str(ca_file))
    async with serve(OK, tls=context) as target:
        for verdict in await both(CheckRunner(HERE, ca_file=ca_file), target.port):
            assert verdict.status is ResultStatus.UP, verdict.error
            assert verdict.tls
            assert verdict.tls.cipher == cipher


async def test_a_name_in_the_subject_alone_is_no_name(tmp_path: Path) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), to_datetime(SystemClock().now_ms())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named("shop.example.test"))
        .issuer_name(named("shop.example.test"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=90))
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(Encoding.PEM)
    file = tmp_path / "server.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + public)
    ca_file = tmp_path / "trusted.pem"
    ca_file.write_bytes(public)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    runner = CheckRunner(HERE, ca_file=ca_file, resolver=Names({"shop.example.test": [("127.0.0.1",)]}))
    async with serve(OK, tls=context) as target:
        for verdict in (
            await check(runner, target.url(host="shop.example.test", scheme="https")),
            await check_tls(runner, target.port, host="shop.example.test"),
        ):
            assert kind(verdict) == "tls_hostname_mismatch"
            assert verdict.error
            assert "no alternative names" in verdict.error.message


@pytest.mark.parametrize(
    ("number", "expected", "word"),
    [
        (10, "tls_handshake", "the server ended it (unexpected message)"),
        (40, "tls_handshake", "no common cipher, or it wants a client certificate"),
        (70, "tls_weak", "none of the versions of TLS that are wanted"),
        (71, "tls_handshake", "stronger ciphers"),
        (80, "tls_handshake", "an error of its own"),
        (112, "tls_handshake", "does not know the name"),
        (116, "tls_client_cert_required", "demands a client certificate"),
        (120, "tls_handshake", "none of the protocols it was offered (ALPN: http/1.1)"),
        (115, "tls_handshake", "the server ended it (alert 115)"),
        (200, "tls_handshake", "the server ended it (alert 200)"),
    ],
)
async def test_an_alert_in_answer_to_the_greeting_is_put_in_words(
    runner: CheckRunner, number: int, expected: str, word: str
) -> None:
    async def object_to_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(b"\x15\x03\x03\x00\x02\x02" + bytes([number]))

    async with speaking(object_to_all) as port:
        verdict = await check(runner, f"https://127.0.0.1:{port}/")
    assert kind(verdict) == expected
    assert verdict.error
    assert word in verdict.error.message


async def test_a_server_that_refuses_http2_in_the_handshake_does_not_offer_it(runner: CheckRunner) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x78")

    async with speaking(refuse) as port:
        verdict = await check(runner, f"https://127.0.0.1:{port}/", http_version="2")
    assert kind(verdict) == "protocol_error"
    assert verdict.error
    assert verdict.error.message == "the server does not offer HTTP/2"


def _expired(authority: Authority) -> trustme.LeafCert:
    return authority.leaf("client.example", starts=-9, ends=-1)


def _foreign(_: Authority) -> trustme.LeafCert:
    return trustme.CA().issue_cert("client.example")


@pytest.mark.parametrize(
    ("issue", "word"), [(_expired, "expired"), (_foreign, "does not know its issuer")], ids=["expired", "foreign"]
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_what_a_server_says_about_the_client_certificate_is_not_said_about_its_own(
    runner: CheckRunner,
    authority: Authority,
    version: ssl.TLSVersion,
    issue: Callable[[Authority], trustme.LeafCert],
    word: str,
) -> None:
    client = issue(authority)
    shown = "".join(each.bytes().decode() for each in client.cert_chain_pems)
    pair = {"certificate": shown, "key": client.private_key_pem.bytes().decode()}
    with blocking_tls(demanding(authority, version), answer("200 OK", b"in")) as port:
        verdict = await check(runner, f"https://127.0.0.1:{port}/", tls={"client_certificate": pair})
    assert kind(verdict) == "tls_handshake"
    assert verdict.error
    assert "the server refused the client certificate" in verdict.error.message
    assert word in verdict.error.message


def _close_in_order(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x15\x03\x03\x00\x02\x01\x00")


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize(
    ("end", "expected"),
    [(_close_in_order, "tls_handshake"), (_reset, "connection_reset")],
    ids=["close notify", "reset"],
)
async def test_a_handshake_that_the_server_leaves_is_named_as_that(
    runner: CheckRunner, end: Callable[[asyncio.StreamWriter], None], expected: str
) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        end(writer)

    async with speaking(leave) as port:
        verdict = await check_tls(runner, port)
    assert kind(verdict) == expected
    assert verdict.error
    assert verdict.error.message.endswith("during the TLS handshake")


async def test_tls_05_an_objection_that_a_reset_overtook_is_heard_at_a_second_look(
    runner: CheckRunner, authority: Authority
) -> None:
    """Who hangs up with a request unread resets the connection, and the client never sees the alert before it."""
    context, greetings = demanding(authority, ssl.TLSVersion.TLSv1_3), 0

    async def object_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greetings
        greetings += 1
        is_first, incoming, outgoing = greetings == 1, ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        while data := await reader.read(65536):
            incoming.write(data)
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
            except ssl.SSLError:
                if is_first:
                    _reset(writer)
                else:
                    writer.write(outgoing.read())
                return

    async with speaking(object_to) as port:
        verdict = await check(runner, f"https://127.0.0.1:{port}/")
    assert kind(verdict) == "tls_client_cert_required"
    assert greetings == 2
