"""What to check: one specification per kind. A new kind is one class, one probe, one evaluate table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.domain.auth import BasicAuth, BearerAuth, ClientCertificate, DigestAuth, OAuth2Auth
from shared.domain.checks_http import FormBody, HttpCheck, JsonBody
from shared.domain.checks_network import DnsCheck, PingCheck, SslCheck, TcpCheck
from shared.domain.checks_steps import HttpStepsCheck
from shared.domain.headers import is_sensitive_header
from shared.domain.heartbeat import HeartbeatCheck
from shared.domain.route import Proxy
from shared.domain.spec import Secret, Strict, TlsOptions

__all__ = [
    "AnyCheck",
    "BasicAuth",
    "BearerAuth",
    "CheckKind",
    "CheckSpec",
    "ClientCertificate",
    "DigestAuth",
    "DnsCheck",
    "FormBody",
    "HeartbeatCheck",
    "HttpCheck",
    "HttpStepsCheck",
    "JsonBody",
    "OAuth2Auth",
    "PingCheck",
    "Proxy",
    "Secret",
    "SslCheck",
    "Strict",
    "TcpCheck",
    "TlsOptions",
    "is_sensitive_header",
]

AnyCheck = HttpCheck | SslCheck | TcpCheck | DnsCheck | PingCheck | HttpStepsCheck | HeartbeatCheck
CheckSpec = Annotated[AnyCheck, Field(discriminator="kind")]
CheckKind = Literal["http", "ssl", "tcp", "dns", "ping", "http_steps", "heartbeat"]
