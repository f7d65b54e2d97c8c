"""Certificates and handshakes, good and bad, on both kinds that see them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.result import CheckVerdict, ResultStatus
from tests.integration.probes.conftest import HERE, Authority, check, check_tls
from tests.integration.probes.targets import answer, blocking_tls, closed_port, serve

NEVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
OK = answer("200 OK", b"ready")


async def both(runner: CheckRunner, port: int, *, verify: bool = True) -> tuple[CheckVerdict, CheckVerdict]:
    """The same server seen by kind http and by kind ssl."""
    options = {"verify": verify}
    return (
        await check(runner, f"https://127.0.0.1:{port}/", tls=options),
        await check_tls(runner, port, tls=options),
    )


def kind(verdict: CheckVerdict) -> str | None:
    return verdict.error.kind.value if verdict.error else None


async def test_a_good_certificate_is_up_with_all_its_facts(runner: CheckRunner, authority: Authority) -> None:
    async with serve(OK, tls=authority.context()) as target:
        for verdict in await both(runner, target.port):
            assert verdict.status is ResultStatus.UP, verdict.error
            assert verdict.tls
            assert verdict.tls.version == "TLSv1.3"
            assert verdict.tls.remote_address == f"127.0.0.1:{target.port}"
            assert len(verdict.tls.chain) == 2
            certificate = verdict.tls.certificate
            assert certificate
            assert certificate.sans == ("127.0.0.1", "localhost")
            assert certificate.days_left == 89
            assert len(certificate.fingerprint_sha256) == 64
            assert verdict.timings_ms.tls > 0


async def test_tls_01_an_expired_certificate_keeps_its_facts(runner: CheckRunner, authority: Authority) -> None:
    leaf = authority.leaf(starts=-30, ends=-1)
    async with serve(OK, tls=authority.context(leaf)) as target:
        for verdict in await both(runner, target.port):
            assert kind(verdict) == "tls_expired"
            assert verdict.error
            assert verdict.error.message == "certificate of 127.0.0.1 expired 1 day ago"
            assert verdict.tls
            assert verdict.tls.certificate
            assert verdict.tls.certificate.days_left == -2
            assert verdict.tls.certificate.not_after
            assert verdict.tls.certificate.sans


async def test_tls_01_an_expired_certificate_fails_an_ssl_check_even_unverified(
    runner: CheckRunner, authority: Authority
) -> None:
    leaf = authority.leaf(starts=-30, ends=-1)
    async with serve(OK, tls=authority.context(leaf)) as target:
        http, tls = await both(runner, target.port, verify=False)
        assert http.status is ResultStatus.UP, http.error
        assert http.tls
        assert http.tls.certificate
        assert http.tls.certificate.days_left == -2
        assert kind(tls) == "tls_expired"


async def test_tls_01_a_certificate_of_the_future_is_not_yet_valid(
    runner: CheckRunner, authority: Authority
) -> None:
    async with serve(OK, tls=authority.context(authority.leaf(starts=2))) as target:
        for verdict in await both(runner, target.port):
            assert kind(verdict) == "tls_not_yet_valid"
            assert verdict.tls
            assert verdict.tls.certificate


async def test_tls_01_a_self_signed_certificate_is_told_from_an_untrusted_one(
    runner: CheckRunner, tmp_path: Path
) -> None:
    async with serve(OK, tls=self_signed(tmp_path)[0]) as target:
        for verdict in await both(runner, target.port):
            assert kind(verdict) == "tls_self_signed"
            assert verdict.tls
            assert verdict.tls.certificate


async def test_tls_01_a_closed_port_is_no_certificate_problem(runner: CheckRunner) -> None:
    for verdict in await both(runner, closed_port()):
        assert kind(verdict) == "connect_refused"
        assert verdict.tls is None


async def test_an_unknown_authority_is_untrusted(runner: CheckRunner, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    async with serve(OK, tls=stranger.context()) as target:
        for verdict in await both(runner, target.port):
            assert kind(verdict) == "tls_untrusted"
            assert verdict.tls
            assert verdict.tls.certificate


async def test_a_certificate_for_another_host_is_a_mismatch(runner: CheckRunner, authority: Authority) -> None:
    async with serve(OK, tls=authority.context(authority.leaf("other.example"))) as target:
        for verdict in await both(runner, target.port):
            assert kind(verdict) == "tls_hostname_mismatch"
            assert verdict.tls
            assert verdict.tls.certificate
            assert verdict.tls.certificate.sans == ("other.example",)


async def test_the_server_name_is_what_is_verified(runner: CheckRunner, authority: Authority) -> None:
    async with serve(OK, tls=authority.context(authority.leaf("other.example"))) as target:
        verdict = await check_tls(runner, target.port, server_name="other.example")
        assert verdict.status is ResultStatus.UP, verdict.error


async def test_tls_02_a_missing_intermediate_has_its_own_name(runner: CheckRunner, authority: Authority) -> None:
    context = authority.context(authority.leaf(ends=10), leaf_only=True)
    async with serve(OK, tls=context) as target:
        for verdict in await both(runner, target.port):
            assert kind(verdict) == "tls_chain_incomplete"
            assert verdict.error
            assert "issuer" in verdict.error.message


async def test_tls_02_without_verification_the_expiry_is_still_watched(
    runner: CheckRunner, authority: Authority
) -> None:
    context = authority.context(authority.leaf(ends=10), leaf_only=True)
    async with serve(OK, tls=context) as target:
        verdict = await check_tls(runner, target.port, tls={"verify": False, "expiry_warning_days": [14, 7]})
        assert verdict.status is ResultStatus.DEGRADED
        assert verdict.error
        assert verdict.error.message == "certificate of 127.0.0.1 expires in 9 days (warning at 14)"


async def test_tls_03_the_days_left_are_those_of_the_validated_path(tmp_path: Path) -> None:
    folder = tmp_path
    now = datetime.now(UTC)
    old_root, new_root, middle, leaf = (ec.generate_private_key(ec.SECP256R1()) for _ in range(4))
    ended = now - timedelta(days=5)
    sent = [
        make_certificate("leaf", leaf, "middle", middle, now + timedelta(days=30), ca=False),
        make_certificate("middle", middle, "new root", new_root, now + timedelta(days=300)),
        make_certificate("new root", new_root, "old root", old_root, ended),
        make_certificate("old root", old_root, "old root", old_root, ended),
    ]
    trusted_new = make_certificate("new root", new_root, "new root", new_root, now + timedelta(days=900))
    context = context_of(folder, leaf, sent)
    both_roots, only_old = folder / "both.pem", folder / "old.pem"
    both_roots.write_bytes(pem(trusted_new) + pem(sent[3]))
    only_old.write_bytes(pem(sent[3]))
    async with serve(OK, tls=context) as target:
        good = await check_tls(CheckRunner(HERE, ca_file=both_roots), target.port, tls={"expiry_warning_days": []})
        bad = await check_tls(CheckRunner(HERE, ca_file=only_old), target.port)
    assert good.status is ResultStatus.UP, good.error
    assert good.tls
    assert good.tls.certificate
    assert good.tls.certificate.days_left in {29, 30}
    assert kind(bad) == "tls_expired"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_tls_05_a_demanded_client_certificate_is_said(
    runner: CheckRunner, authority: Authority, version: ssl.TLSVersion
) -> None:
    with blocking_tls(demanding(authority, version), OK) as port:
        for verdict in await both(runner, port):
            assert kind(verdict) == "tls_client_cert_required"
            assert verdict.tls
            assert verdict.tls.certificate
            # Before 1.3 the objection comes in the middle of the handshake, which then has no version yet.
            assert verdict.tls.version == ("TLSv1.3" if version is ssl.TLSVersion.TLSv1_3 else None)


def demanding(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    authority.root.configure_trust(context)
    return context


@pytest.mark.parametrize("odd", ["negative serial", "serial 0", "never ends", "no subject"])
async def test_tls_06_odd_but_working_certificates_are_up(tmp_path: Path, odd: str) -> None:
    context, ca_file = self_signed(tmp_path, odd)
    async with serve(OK, tls=context) as target:
        for verdict in await both(CheckRunner(HERE, ca_file=ca_file), target.port):
            assert verdict.status is ResultStatus.UP, verdict.error
            assert verdict.tls
            certificate = verdict.tls.certificate
            assert certificate
            assert certificate.not_after
            assert certificate.days_left is not None
            if odd == "negative serial":
                assert certificate.serial == "-499602d2"
            if odd == "serial 0":
                assert certificate.serial == "0"
            if odd == "never ends":
                assert certificate.not_after.year == 9999


async def test_tls_07_a_renewed_certificate_is_seen_at_once(runner: CheckRunner, authority: Authority) -> None:
    prints = set()
    for _ in range(2):
        async with serve(OK, tls=authority.context()) as target:
            verdict = await check(runner, target.url(scheme="https"))
            assert verdict.tls
            assert verdict.tls.certificate
            prints.add(verdict.tls.certificate.fingerprint_sha256)
    assert len(prints) == 2


async def test_a_server_that_greets_in_plain_text_is_no_tls(runner: CheckRunner) -> None:
    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        verdict = await check_tls(runner, server.sockets[0].getsockname()[1])
        assert kind(verdict) == "tls_handshake"
        assert verdict.error
        assert "plain text" in verdict.error.message


def make_certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    ends: datetime,
    *,
    ca: bool = True,
    serial: int | None = None,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=900))
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=not subject)
    )
    return builder.sign(issuer_key, hashes.SHA256())


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])


def self_signed(folder: Path, odd: str = "") -> tuple[ssl.SSLContext, Path]:
    """A server's context and the file to trust it by."""
    key = ec.generate_private_key(ec.SECP256R1())
    ends = NEVER if odd == "never ends" else datetime.now(UTC) + timedelta(days=90)
    subject = "" if odd == "no subject" else "odd"

    def ready(serial: int | None = None) -> x509.Certificate:
        return make_certificate(subject, key, subject, key, ends, serial=serial)

    certificate: x509.Certificate | bytes
    if odd == "negative serial":
        certificate = with_serial(ready(0x499602D2), key, -0x499602D2)
    elif odd == "serial 0":
        certificate = with_serial(ready(0x55), key, 0)
    else:
        certificate = ready()
    ca_file = folder / "trusted.pem"
    ca_file.write_bytes(pem(certificate))
    return context_of(folder, key, [certificate]), ca_file


def with_serial(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, serial: int) -> bytes:
    """The certificate signed again with a serial that no library agrees to write; PEM."""
    size = 1 if serial == 0 else 4
    old = b"\x02" + bytes([size]) + certificate.serial_number.to_bytes(size)
    assert certificate.tbs_certificate_bytes.count(old) == 1
    body = certificate.tbs_certificate_bytes.replace(
        old, b"\x02" + bytes([size]) + serial.to_bytes(size, signed=True)
    )
    signature = b"\x00" + key.sign(body, ec.ECDSA(hashes.SHA256()))
    ecdsa_with_sha256 = bytes.fromhex("300a06082a8648ce3d040302")
    der = der_value(0x30, body + ecdsa_with_sha256 + der_value(0x03, signature))
    return ssl.DER_cert_to_PEM_cert(der).encode()


def der_value(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 128:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size) + content


def pem(certificate: x509.Certificate | bytes) -> bytes:
    return certificate if isinstance(certificate, bytes) else certificate.public_bytes(serialization.Encoding.PEM)


def context_of(
    folder: Path, key: ec.EllipticCurvePrivateKey, chain: Sequence[x509.Certificate | bytes]
) -> ssl.SSLContext:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "server.pem"
    file.write_bytes(private + b"".join(map(pem, chain)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_a_request_is_not_sent_over_a_protocol_that_is_too_old(
    runner: CheckRunner, authority: Authority
) -> None:
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with blocking_tls(context, OK) as port:
        verdict = await check(runner, f"https://127.0.0.1:{port}/", tls={"min_version": "1.3"})
        assert kind(verdict) == "tls_weak"
