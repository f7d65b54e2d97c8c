"""Handshakes below HTTPS: after a plain-text prelude, with every address of a name, and with weak servers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import SslCheck, TcpCheck
from shared.domain.result import CheckVerdict, ResultStatus
from shared.http.guard import AddressPolicy
from tests.integration.probes.conftest import AT_ONCE, HERE, TIMEOUT, Authority, check_tls
from tests.integration.probes.conversations import speaking
from tests.integration.probes.targets import Names, answer, black_hole, serve
from tests.integration.probes.test_tls import named, pem

OK = answer("200 OK", b"ready")
PRELUDES: dict[str, list[tuple[bytes, bytes]]] = {
    "smtp": [
        (b"", b"220 mail.example ESMTP\r\n"),
        (b"EHLO tocsin\r\n", b"250-mail.example\r\n250 STARTTLS\r\n"),
        (b"STARTTLS\r\n", b"220 go ahead\r\n"),
    ],
    "imap": [(b"", b"* OK ready\r\n"), (b"t1 STARTTLS\r\n", b"t1 OK begin\r\n")],
    "postgres": [(bytes.fromhex("0000000804d2162f"), b"S")],
    "pop3": [(b"", b"+OK ready\r\n"), (b"STLS\r\n", b"+OK begin\r\n")],
}


def upgrading(
    script: list[tuple[bytes, bytes]], context: ssl.SSLContext
) -> contextlib.AbstractAsyncContextManager[int]:
    """A server that says its lines in plain text, each after what it waits for, and then shakes hands."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for expected, line in script:
            assert await reader.readexactly(len(expected)) == expected
            writer.write(line)
        await writer.drain()
        await writer.start_tls(context)
        await reader.read()

    return speaking(talk)


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


@pytest.mark.parametrize("protocol", sorted(PRELUDES))
async def test_a_prelude_leads_to_the_certificate(runner: CheckRunner, authority: Authority, protocol: str) -> None:
    async with upgrading(PRELUDES[protocol], authority.context()) as port:
        verdict = await check_tls(runner, port, starttls=protocol)
    assert verdict.status is ResultStatus.UP, verdict.error
    assert verdict.tls
    assert verdict.tls.certificate
    assert verdict.tls.certificate.days_left == 89
    assert verdict.timings_ms.first_byte > 0
    assert verdict.timings_ms.tls > 0


async def test_a_certificate_behind_a_prelude_is_judged_too(runner: CheckRunner, authority: Authority) -> None:
    context = authority.context(authority.leaf(starts=-30, ends=-1))
    async with upgrading(PRELUDES["smtp"], context) as port:
        assert kind(await check_tls(runner, port, starttls="smtp")) == "tls_expired"


async def test_words_in_front_of_the_handshake_are_refused(runner: CheckRunner, authority: Authority) -> None:
    *before, (expected, line) = PRELUDES["smtp"]
    async with upgrading([*before, (expected, line + b"250 injected\r\n")], authority.context()) as port:
        verdict = await check_tls(runner, port, starttls="smtp")
    assert kind(verdict) == "protocol_error"
    assert verdict.error
    assert "plain text" in verdict.error.message


async def test_a_silent_server_names_the_protocol_and_the_step(runner: CheckRunner, authority: Authority) -> None:
    async with upgrading([(b"never", b"")], authority.context()) as port:
        started = time.monotonic()
        verdict = await check_tls(runner, port, starttls="imap", timeout=1)
    assert kind(verdict) == "timeout"
    assert verdict.error
    assert verdict.error.message == "timed out after 1 s before TLS, imap: waiting for the greeting"
    assert time.monotonic() - started < AT_ONCE


async def test_another_protocol_is_a_protocol_error(runner: CheckRunner, authority: Authority) -> None:
    async with upgrading([(b"", b"SSH-2.0-x\r\n")], authority.context()) as port:
        verdict = await check_tls(runner, port, starttls="imap")
    assert kind(verdict) == "protocol_error"
    assert verdict.error
    assert "the greeting" in verdict.error.message


@contextlib.asynccontextmanager
async def two_backends(first: ssl.SSLContext, second: ssl.SSLContext) -> AsyncIterator[tuple[CheckRunner, int]]:
    """One port on two addresses behind ``two.example.test``, and a runner without a trusted authority."""
    async with serve(OK, tls=first) as one, serve(OK, tls=second, host="127.0.0.2", port=one.port):
        yield CheckRunner(HERE, resolver=Names({"two.example.test": [("127.0.0.1", "127.0.0.2")]})), one.port


async def survey(runner: CheckRunner, port: int, *, timeout: float = TIMEOUT, **fields: Any) -> CheckVerdict:
    spec = SslCheck.model_validate({"host": "two.example.test", "port": port, "addresses": "all", **fields})
    return await runner.run(spec, timeout_seconds=timeout)


async def test_one_stale_backend_is_found_and_named(authority: Authority) -> None:
    good = authority.context(authority.leaf("two.example.test"))
    stale = authority.context(authority.leaf("two.example.test", starts=-90, ends=-3.5))
    async with two_backends(good, stale) as (runner, port):
        verdict = await survey(runner, port, tls={"verify": False})
        assert kind(verdict) == "tls_expired"
        assert verdict.error
        expected = f"127.0.0.2:{port}, one of 2 addresses: certificate of two.example.test expired 3 days ago"
        assert verdict.error.message == expected
        assert verdict.tls
        assert verdict.tls.remote_address == f"127.0.0.2:{port}"
        assert [(each.address, each.status.value) for each in verdict.tls.addresses] == [
            (f"127.0.0.1:{port}", "up"),
            (f"127.0.0.2:{port}", "down"),
        ]
        assert len({each.fingerprint_sha256 for each in verdict.tls.addresses}) == 2
        assert [each.days_left for each in verdict.tls.addresses] == [89, -4]
        # A check that stops at the first address that answers is blind to it.
        assert (await survey(runner, port, tls={"verify": False}, addresses="any")).status is ResultStatus.UP


async def test_a_hanging_backend_does_not_hide_the_others(authority: Authority) -> None:
    with black_hole() as port:
        async with serve(OK, tls=authority.context(), host="127.0.0.2", port=port):
            runner = CheckRunner(HERE, resolver=Names({"two.example.test": [("127.0.0.1", "127.0.0.2")]}))
            started = time.monotonic()
            verdict = await survey(runner, port, tls={"verify": False}, timeout=2)
            assert time.monotonic() - started < AT_ONCE
    assert kind(verdict) == "connect_timeout"
    assert verdict.error
    assert verdict.error.message.startswith(f"127.0.0.1:{port}, one of 2 addresses")
    assert verdict.tls
    assert [each.status.value for each in verdict.tls.addresses] == ["down", "up"]


async def test_sec_01_one_private_address_blocks_all_of_them() -> None:
    async with serve(OK) as canary:
        names = Names({"two.example.test": [("203.0.113.10", "127.0.0.1")]})
        verdict = await survey(CheckRunner(AddressPolicy(), resolver=names), canary.port)
        assert kind(verdict) == "blocked_target"
        assert canary.connections == 0


async def test_an_old_protocol_is_weak_with_all_its_facts(runner: CheckRunner, authority: Authority) -> None:
    context = authority.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serve(OK, tls=context) as target:
        verdict = await check_tls(runner, target.port)
        assert kind(verdict) == "tls_weak"
        assert verdict.error
        assert verdict.error.message == "the server speaks TLSv1.1, and at least TLS 1.2 is wanted"
        assert verdict.tls
        assert verdict.tls.version == "TLSv1.1"
        assert verdict.tls.certificate
        assert (await check_tls(runner, target.port, tls={"min_version": "1.1"})).status is ResultStatus.UP


async def test_a_server_without_a_certificate_is_never_up(runner: CheckRunner) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")
    async with serve(OK, tls=context) as target:
        for options in ({}, {"min_version": "1.0"}, {"min_version": "1.0", "verify": False}):
            assert kind(await check_tls(runner, target.port, tls=options)) == "tls_handshake"


async def test_silence_after_the_handshake_is_no_timeout(runner: CheckRunner, authority: Authority) -> None:
    context = authority.context()
    context.num_tickets = 0
    async with serve(OK, tls=context) as target:
        assert (await check_tls(runner, target.port)).status is ResultStatus.UP
        spec = TcpCheck.model_validate({"host": "127.0.0.1", "port": target.port, "tls": {}})
        assert (await runner.run(spec, timeout_seconds=TIMEOUT)).status is ResultStatus.UP


async def test_a_newer_protocol_can_be_demanded(runner: CheckRunner, authority: Authority) -> None:
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serve(OK, tls=context) as target:
        assert (await check_tls(runner, target.port)).status is ResultStatus.UP
        assert kind(await check_tls(runner, target.port, tls={"min_version": "1.3"})) == "tls_weak"


async def test_a_small_key_is_weak_with_all_its_facts(tmp_path: Path) -> None:
    context, ca_file = with_small_key(tmp_path)
    async with serve(OK, tls=context) as target:
        verdict = await check_tls(CheckRunner(HERE, ca_file=ca_file), target.port)
    assert kind(verdict) == "tls_weak"
    assert verdict.tls
    assert verdict.tls.certificate
    assert (verdict.tls.certificate.key_kind, verdict.tls.certificate.key_bits) == ("RSA", 1024)


def with_small_key(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context and the file to trust it by."""
    key = rsa.generate_private_key(65537, 1024)  # noqa: S505 it is weak on purpose
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named("weak"))
        .issuer_name(named("weak"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=90))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    ca_file, server_file = folder / "weak.pem", folder / "server.pem"
    ca_file.write_bytes(pem(certificate))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    server_file.write_bytes(private + pem(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(server_file)
    return context, ca_file
