"""A target whose certificate changes, and the recorder that looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from pydantic import TypeAdapter

from shared.contracts.wire import ResultMessage
from shared.db.session import Database
from shared.domain.checks import AnyCheck, CheckSpec, HttpCheck, SslCheck, TcpCheck
from shared.domain.clock import to_datetime
from shared.domain.errors import CheckError
from shared.domain.evaluate import evaluate
from shared.domain.observation import HttpObservation, TlsObservation, TlsPeer
from shared.domain.observation_network import TcpObservation
from shared.domain.result import Timings
from shared.services.certificates import CertificateWatch
from shared.services.recording import record
from tests.integration.path.scene import INTERVAL_MS, Scene

NOW = to_datetime(1_800_000_000_000)
SSL: dict[str, Any] = {"kind": "ssl", "host": "a.test"}
HTTPS: dict[str, Any] = {"kind": "http", "url": "https://a.test/"}
TCP: dict[str, Any] = {"kind": "tcp", "host": "a.test", "port": 993, "tls": {}}
_checks: TypeAdapter[AnyCheck] = TypeAdapter(CheckSpec)


@cache
def key(_: str) -> ec.EllipticCurvePrivateKey:
    """The key of this name."""
    return ec.generate_private_key(ec.SECP256R1())


def certificate(*, issuer: str = "one", key_name: str = "first", names: Sequence[str] = ("a.test",)) -> bytes:
    """One more certificate of a target: its serial is never the same."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.test")]))
        .issuer_name(name)
        .public_key(key(key_name).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=200))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
    )
    return builder.sign(key("authority"), hashes.SHA256()).public_bytes(Encoding.DER)


OTHER = {
    "issuer": certificate(issuer="two"),
    "key": certificate(key_name="second"),
    "names": certificate(names=("a.test", "b.test")),
}
TOLD = {
    "issuer": "the issuer changed from CN=one to CN=two",
    "key": "the key changed",
    "names": "names were added: b.test",
}
UP = ("up", "")


def reporting(check: dict[str, Any], *kinds: str) -> dict[str, Any]:
    return {**check, "tls": {"report_changes": list(kinds)}}


@dataclass
class Viewer:
    """One recorder, with what it remembers."""

    scene: Scene
    database: Database
    watch: CertificateWatch = field(default_factory=CertificateWatch)

    def result(
        self,
        monitor_id: UUID,
        check: dict[str, Any],
        der: bytes,
        *,
        error: CheckError | None = None,
        status_code: int = 200,
        revision: int = 1,
    ) -> ResultMessage:
        """A look at a target that shows this certificate, one interval later."""
        self.scene.clock.advance(INTERVAL_MS / 1000)
        now_ms, spec = self.scene.clock.now_ms(), _checks.validate_python(check)
        peer = TlsPeer("TLSv1.3", "any", (der,), (der,))
        seen: TlsObservation | HttpObservation | TcpObservation
        if isinstance(spec, TcpCheck):
            seen = TcpObservation(Timings(), peer=peer, error=error)
        elif isinstance(spec, HttpCheck):
            seen = HttpObservation(
                timings=Timings(), tls=peer, status_code=status_code, final_url=spec.url, error=error
            )
        else:
            assert isinstance(spec, SslCheck)
            seen = TlsObservation(Timings(), peer=peer, error=error)
        return ResultMessage(
            monitor_id, revision, "default", now_ms, now_ms, evaluate(spec, seen, now_ms), worker="w"
        )

    async def look(self, monitor_id: UUID, check: dict[str, Any], der: bytes, **seen: Any) -> tuple[str, str]:
        """Record such a result; answers its status, and its message if it has one."""
        (found,) = await self.record([self.result(monitor_id, check, der, **seen)])
        return found

    async def record(self, messages: Sequence[ResultMessage]) -> list[tuple[str, str]]:
        """Answers status and message of each, as they were stored."""
        now_ms = self.scene.clock.now_ms()
        async with self.database.system() as session:
            judged = await self.watch.judge(session, messages, now_ms)
            await record(session, judged, now_ms)
        return [
            (each.verdict.status.value, each.verdict.error.message if each.verdict.error else "") for each in judged
        ]

    async def known(self, monitor_id: UUID) -> list[Any]:
        """The certificates that are stored, in the order in which they were seen first."""
        return await self.scene.rows(
            "SELECT * FROM certificates WHERE monitor_id = :id ORDER BY first_seen_at, fingerprint_sha256",
            id=monitor_id,
        )
