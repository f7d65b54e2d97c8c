"""What to check: one specification per kind. A new kind is one class here, one probe, one evaluate table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.domain.assertions import Assertion

MAX_ASSERTIONS = 30


class Strict(BaseModel):
    """Unknown fields are refused: a typo must not switch a condition off silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BasicAuth(Strict):
    kind: Literal["basic"] = "basic"
    username: Annotated[str, Field(max_length=256)]
    password: Annotated[str, Field(max_length=4096)]


class BearerAuth(Strict):
    kind: Literal["bearer"] = "bearer"
    token: Annotated[str, Field(min_length=1, max_length=8192)]


Auth = Annotated[BasicAuth | BearerAuth, Field(discriminator="kind")]


class TlsOptions(Strict):
    verify: bool = True
    expiry_warning_days: Annotated[list[Annotated[int, Field(ge=0, le=3650)]], Field(max_length=10)] = [
        30,
        14,
        7,
    ]


class HttpCheck(Strict):
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


class SslCheck(Strict):
    kind: Literal["ssl"] = "ssl"
    host: Annotated[str, Field(min_length=1, max_length=253)]
    port: Annotated[int, Field(ge=1, le=65535)] = 443
    server_name: Annotated[str | None, Field(max_length=253)] = None
    ip_family: Literal["auto", "4", "6"] = "auto"
    tls: TlsOptions = TlsOptions()
    assertions: Annotated[list[Assertion], Field(max_length=MAX_ASSERTIONS)] = []


CheckSpec = Annotated[HttpCheck | SslCheck, Field(discriminator="kind")]
