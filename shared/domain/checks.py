"""What to check: one specification per kind. A new kind is one class here, one probe, one evaluate table."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shared.domain.assertions import Assertion
from shared.domain.checks_network import DnsCheck, PingCheck, SslCheck, TcpCheck
from shared.domain.headers import check_header_value, check_request_headers, is_sensitive_header
from shared.domain.spec import Secret, Strict, TlsOptions
from shared.domain.url import parse_url, split_userinfo

__all__ = [
    "AnyCheck",
    "CheckSpec",
    "DnsCheck",
    "HttpCheck",
    "PingCheck",
    "Secret",
    "SslCheck",
    "Strict",
    "TcpCheck",
    "TlsOptions",
    "is_sensitive_header",
]

MAX_ASSERTIONS = 30
_BODY_SOURCES = frozenset({"body", "json"})


class BasicAuth(Strict):
    kind: Literal["basic"] = "basic"
    username: Annotated[str, Field(max_length=256)]
    password: Annotated[str, Field(max_length=4096), Secret()]

    @field_validator("username")
    @classmethod
    def _no_colon(cls, username: str) -> str:
        if ":" in username:
            raise ValueError("a user name cannot contain ':' in basic authentication (RFC 7617)")
        return username

    @field_validator("username", "password")
    @classmethod
    def _no_controls(cls, text: str) -> str:
        if any(ord(character) < 32 or ord(character) == 127 for character in text):
            raise ValueError("control characters cannot be sent in basic authentication (RFC 7617)")
        return text


class BearerAuth(Strict):
    kind: Literal["bearer"] = "bearer"
    token: Annotated[str, Field(min_length=1, max_length=8192), Secret()]

    @field_validator("token")
    @classmethod
    def _sendable(cls, token: str) -> str:
        if " " in token:
            raise ValueError("a bearer token has no blanks: give it without the word 'Bearer'")
        check_header_value("Authorization", token)
        return token


Auth = Annotated[BasicAuth | BearerAuth, Field(discriminator="kind")]


class HttpCheck(Strict):
    """One request. User and password inside ``url`` are moved into ``auth``."""

    kind: Literal["http"] = "http"
    url: Annotated[str, Field(min_length=8, max_length=2048)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[dict[str, str], Field(max_length=50)] = {}
    body: Annotated[str | None, Field(max_length=65536)] = None
    auth: Auth | None = None
    follow_redirects: bool = True
    max_redirects: Annotated[int, Field(ge=0, le=20)] = 10
    ip_family: Literal["auto", "4", "6"] = "auto"
    tls: TlsOptions = TlsOptions()
    assertions: Annotated[list[Assertion], Field(max_length=MAX_ASSERTIONS)] = []

    @model_validator(mode="before")
    @classmethod
    def _userinfo_becomes_auth(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("url"), str) or "@" not in data["url"]:
            return data
        try:
            url, userinfo = split_userinfo(data["url"])
        except ValueError:
            return data  # the field's own check words the fault
        if userinfo is None:
            return data
        if data.get("auth") is not None:
            raise ValueError("user and password are given in the URL and in 'auth': remove them from the URL")
        return {**data, "url": url, "auth": {"kind": "basic", "username": userinfo[0], "password": userinfo[1]}}

    @field_validator("url")
    @classmethod
    def _dialable(cls, url: str) -> str:
        parse_url(url)
        return url

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        check_request_headers(headers)
        return headers

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.method == "HEAD":
            if self.body is not None:
                raise ValueError("body: a HEAD request carries none: use POST, or remove the body")
            if any(assertion.source in _BODY_SOURCES for assertion in self.assertions):
                raise ValueError("assertions: the answer to HEAD has no body to look at: use GET")
        if self.auth and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: Authorization and 'auth' exclude each other: keep one of them")
        return self


AnyCheck = HttpCheck | SslCheck | TcpCheck | DnsCheck | PingCheck
CheckSpec = Annotated[AnyCheck, Field(discriminator="kind")]
