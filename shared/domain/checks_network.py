"""The specifications of the kinds that look below HTTP: a handshake, a connection, a name, an echo."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from shared.domain.assertions import Assertion
from shared.domain.banner import compile_banner, unescape
from shared.domain.dns_records import RecordKind, normalise_record, query_name
from shared.domain.route import DNS_PORT
from shared.domain.spec import Strict, TlsOptions
from shared.domain.url import normalise_host, refuse_other_family

MAX_ASSERTIONS = 30
_SSL_SOURCES = frozenset({"certificate_days_left", "response_time_ms"})
_NETWORK_SOURCES = frozenset({"response_time_ms"})

Family = Literal["auto", "4", "6"]
Port = Annotated[int, Field(ge=1, le=65535)]
Host = Annotated[str, Field(min_length=1, max_length=253)]
Assertions = Annotated[list[Assertion], Field(max_length=MAX_ASSERTIONS)]
StartTls = Literal["smtp", "imap", "pop3", "ftp", "postgres", "mysql", "ldap", "xmpp"]

STARTTLS_PORTS: dict[str, int] = {
    "smtp": 587,
    "imap": 143,
    "pop3": 110,
    "ftp": 21,
    "postgres": 5432,
    "mysql": 3306,
    "ldap": 389,
    "xmpp": 5222,
}


class SslCheck(Strict):
    """TLS handshakes; the certificates are what is judged.

    With ``starttls`` the connection begins in plain text, in that protocol. With ``addresses`` "all" there is one
    handshake with each address behind the name, and the worst one decides.
    """

    kind: Literal["ssl"] = "ssl"
    host: Host
    port: Port = 443
    server_name: Annotated[str | None, Field(max_length=253)] = None
    starttls: StartTls | None = None
    addresses: Literal["any", "all"] = "any"
    ip_family: Family = "auto"
    tls: TlsOptions = TlsOptions()
    assertions: Assertions = []

    @property
    def target(self) -> str:
        """What is checked, in one word for people."""
        return f"ssl://{_authority(self.host, self.port)}"

    @model_validator(mode="before")
    @classmethod
    def _port_of_the_protocol(cls, data: object) -> object:
        if isinstance(data, dict) and "port" not in data and isinstance(data.get("starttls"), str):
            port = STARTTLS_PORTS.get(data["starttls"])
            return data if port is None else {**data, "port": port}
        return data

    @field_validator("host", "server_name")
    @classmethod
    def _a_host(cls, host: str | None) -> str | None:
        return None if host is None else normalise_host(host)

    @field_validator("assertions")
    @classmethod
    def _about_certificates(cls, assertions: list[Assertion]) -> list[Assertion]:
        return _only(assertions, _SSL_SOURCES, "a TLS handshake")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_other_family(self.host, self.ip_family)
        return self


class TcpCheck(Strict):
    """One connection: made, and with ``expect`` answered as it should be.

    ``send`` is text with the escapes of ``unescape``; ``expect`` an RE2 expression over the bytes received.
    """

    kind: Literal["tcp"] = "tcp"
    host: Host
    port: Port
    ip_family: Family = "auto"
    tls: TlsOptions | None = None
    server_name: Annotated[str | None, Field(max_length=253)] = None
    send: Annotated[str | None, Field(min_length=1, max_length=4096)] = None
    expect: Annotated[str | None, Field(min_length=1)] = None
    assertions: Assertions = []

    @property
    def target(self) -> str:
        """What is checked, in one word for people."""
        return f"tcp://{_authority(self.host, self.port)}"

    @field_validator("host", "server_name")
    @classmethod
    def _a_host(cls, host: str | None) -> str | None:
        return None if host is None else normalise_host(host)

    @field_validator("send")
    @classmethod
    def _escapes(cls, send: str | None) -> str | None:
        if send is not None:
            unescape(send)
        return send

    @field_validator("expect")
    @classmethod
    def _a_pattern(cls, expect: str | None) -> str | None:
        if expect is not None:
            compile_banner(expect)
        return expect

    @field_validator("assertions")
    @classmethod
    def _about_time(cls, assertions: list[Assertion]) -> list[Assertion]:
        return _only(assertions, _NETWORK_SOURCES, "a TCP check")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_other_family(self.host, self.ip_family)
        if self.server_name and self.tls is None:
            raise ValueError("server_name: it is sent in a TLS handshake only: add 'tls: {}', or remove it")
        return self


class DnsCheck(Strict):
    """One question to a name server; ``expected`` are values as a zone file has them, in any order.

    ``match`` "equals" wants exactly these records, "contains" at least these. Without a ``resolver`` the
    system's name servers are asked. A PTR question may name the address itself.
    """

    kind: Literal["dns"] = "dns"
    name: Annotated[str, Field(min_length=1, max_length=253)]
    record: RecordKind = "A"
    resolver: Annotated[str | None, Field(max_length=253)] = None
    port: Port = DNS_PORT
    expected: Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=100)] = []
    match: Literal["equals", "contains"] = "contains"
    assertions: Assertions = []

    @property
    def target(self) -> str:
        """What is checked, in one word for people."""
        return f"dns://{self.name}?type={self.record}"

    @field_validator("name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        query_name("A", name)
        return name

    @field_validator("resolver")
    @classmethod
    def _a_host(cls, resolver: str | None) -> str | None:
        return None if resolver is None else normalise_host(resolver)

    @field_validator("assertions")
    @classmethod
    def _about_time(cls, assertions: list[Assertion]) -> list[Assertion]:
        return _only(assertions, _NETWORK_SOURCES, "a DNS check")

    @field_validator("expected")
    @classmethod
    def _values_of_the_record(cls, expected: list[str], info: ValidationInfo) -> list[str]:
        if kind := info.data.get("record"):
            for value in expected:
                normalise_record(kind, value)
        return expected

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.match == "equals" and not self.expected:
            raise ValueError("expected: 'equals' needs the records to compare with")
        if self.resolver is None and self.port != DNS_PORT:
            raise ValueError("port: it is that of 'resolver', and the system's name servers have theirs: name one")
        return self


class PingCheck(Strict):
    """ICMP echoes. A share of lost ones at or above a threshold makes the check degraded, or down."""

    kind: Literal["ping"] = "ping"
    host: Host
    ip_family: Family = "auto"
    count: Annotated[int, Field(ge=1, le=20)] = 3
    interval_ms: Annotated[int, Field(ge=100, le=5000)] = 200
    degraded_loss_percent: Annotated[float | None, Field(gt=0, le=100)] = None
    down_loss_percent: Annotated[float, Field(gt=0, le=100)] = 100
    assertions: Assertions = []

    @property
    def target(self) -> str:
        """What is checked, in one word for people."""
        return f"ping://{self.host}"

    @property
    def sending_seconds(self) -> float:
        """From the first echo to the last one."""
        return (self.count - 1) * self.interval_ms / 1000

    @field_validator("host")
    @classmethod
    def _a_host(cls, host: str) -> str:
        return normalise_host(host)

    @field_validator("assertions")
    @classmethod
    def _about_time(cls, assertions: list[Assertion]) -> list[Assertion]:
        return _only(assertions, _NETWORK_SOURCES, "a ping")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse_other_family(self.host, self.ip_family)
        if self.degraded_loss_percent is not None and self.degraded_loss_percent >= self.down_loss_percent:
            raise ValueError("degraded_loss_percent: it must be below down_loss_percent to be reached at all")
        return self


def _only(assertions: list[Assertion], sources: frozenset[str], where: str) -> list[Assertion]:
    for assertion in assertions:
        if assertion.source not in sources:
            raise ValueError(f"{assertion.source} does not exist in {where}: use kind 'http' for it")
    return assertions


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
