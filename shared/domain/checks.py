"""What to check: one specification per kind. A new kind is one class here, one probe, one evaluate table."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from shared.domain.assertions import Assertion
from shared.domain.headers import check_header_value, check_request_headers, is_sensitive_header
from shared.domain.url import normalise_host, parse_url, split_userinfo

__all__ = ["CheckSpec", "HttpCheck", "Secret", "SslCheck", "is_sensitive_header"]

MAX_ASSERTIONS = 30
_BODY_SOURCES = frozenset({"body", "json"})
_SSL_SOURCES = frozenset({"certificate_days_left", "response_time_ms"})


class Secret:
    """Marks a field whose value is stored sealed and read back masked: ``Annotated[str, Secret()]``."""

    __slots__ = ()


class Strict(BaseModel):
    """Unknown fields are refused: a typo must not switch a condition off silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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


class TlsOptions(Strict):
    verify: bool = True
    expiry_warning_days: Annotated[list[Annotated[int, Field(ge=0, le=3650)]], Field(max_length=10)] = [
        30,
        14,
        7,
    ]


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


class SslCheck(Strict):
    """One TLS handshake; the certificate is what is judged."""

    kind: Literal["ssl"] = "ssl"
    host: Annotated[str, Field(min_length=1, max_length=253)]
    port: Annotated[int, Field(ge=1, le=65535)] = 443
    server_name: Annotated[str | None, Field(max_length=253)] = None
    ip_family: Literal["auto", "4", "6"] = "auto"
    tls: TlsOptions = TlsOptions()
    assertions: Annotated[list[Assertion], Field(max_length=MAX_ASSERTIONS)] = []

    @field_validator("host", "server_name")
    @classmethod
    def _a_host(cls, host: str | None) -> str | None:
        return None if host is None else normalise_host(host)

    @field_validator("assertions")
    @classmethod
    def _about_certificates(cls, assertions: list[Assertion]) -> list[Assertion]:
        for assertion in assertions:
            if assertion.source not in _SSL_SOURCES:
                raise ValueError(f"{assertion.source} does not exist in a TLS handshake: use kind 'http' for it")
        return assertions


CheckSpec = Annotated[HttpCheck | SslCheck, Field(discriminator="kind")]
