"""The specification of kind ``http``: what to ask for, by which way, and what has to be true of the answer."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlencode

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from shared.domain.assertions import BODY_SOURCES, Assertion, Operator
from shared.domain.auth import Auth, ClientCertificate
from shared.domain.comparison import compile_pattern
from shared.domain.headers import check_request_headers, is_sensitive_header
from shared.domain.jsonpath import is_simple
from shared.domain.redaction import secrets_of
from shared.domain.route import NameServer, Proxy
from shared.domain.spec import ExpiryWarningDays, Strict, TlsOptions
from shared.domain.url import parse_url, refuse_other_family, userinfo_in

MAX_ASSERTIONS = 30
MAX_BODY = 65536


class JsonBody(Strict):
    """Any JSON value, sent as ``application/json``."""

    kind: Literal["json"] = "json"
    value: Annotated[Any, Field(description="Texts whose names sound secret are taken out of results.")]

    @field_validator("value")
    @classmethod
    def _sendable(cls, value: Any) -> Any:
        try:
            size = len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"this cannot be sent as JSON: {error}") from None
        if size > MAX_BODY:
            raise ValueError(f"the value is longer than {MAX_BODY} bytes as JSON")
        return value

    def encode(self) -> tuple[str, bytes]:
        """The content type, and what is sent."""
        text = json.dumps(self.value, ensure_ascii=False, separators=(",", ":"))
        return "application/json", text.encode()


class FormBody(Strict):
    """Fields of a form, as ``application/x-www-form-urlencoded``; those whose names sound secret are sealed."""

    kind: Literal["form"] = "form"
    fields: Annotated[
        dict[str, Annotated[str, Field(max_length=8192)]],
        Field(min_length=1, max_length=100, description="Names and values; those that sound secret are sealed."),
    ]

    def encode(self) -> tuple[str, bytes]:
        """The content type, and what is sent."""
        return "application/x-www-form-urlencoded", urlencode(self.fields).encode("ascii")


def _body_kind(body: Any) -> str | None:
    if isinstance(body, str):
        return "text"
    kind = body.get("kind") if isinstance(body, dict) else getattr(body, "kind", None)
    return kind if isinstance(kind, str) else None


Body = Annotated[
    Annotated[Annotated[str, Field(max_length=MAX_BODY)], Tag("text")]
    | Annotated[JsonBody, Tag("json")]
    | Annotated[FormBody, Tag("form")],
    Discriminator(
        _body_kind,
        custom_error_type="body_kind",
        custom_error_message='write text, {"kind": "json", "value": …} or {"kind": "form", "fields": {…}}',
    ),
]


class HttpTls(TlsOptions):
    """Options of every handshake, and what the checker shows of itself. Requests never go over less than 1.2.

    A certificate that ends soon degrades a request only where its owner asked for that: `[30, 14, 7]` is usual.
    """

    expiry_warning_days: ExpiryWarningDays = []
    min_version: Literal["1.2", "1.3"] = "1.2"
    client_certificate: Annotated[
        ClientCertificate | None, Field(description="Shown to a server that demands one.")
    ] = None


class HttpRequest(Strict):
    """One request and what has to be true of its answer: all of a check but its kind.

    User and password inside ``url`` are moved into ``auth``.
    """

    url: Annotated[str, Field(min_length=8, max_length=2048, description="An http or https address.")]
    method: Annotated[
        Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
        Field(description="A `HEAD` has no body to send and none to look at."),
    ] = "GET"
    headers: Annotated[
        dict[str, str],
        Field(max_length=50, description="Sent as typed; they replace our own of the same name."),
        AfterValidator(check_request_headers),
    ] = {}
    body: Annotated[Body | None, Field(description="Text, a JSON value or the fields of a form.")] = None
    auth: Annotated[Auth | None, Field(description="`basic`, `digest`, `bearer` or `oauth2`.")] = None
    follow_redirects: Annotated[bool, Field(description="When false, a redirect is itself the answer.")] = True
    max_redirects: Annotated[int, Field(ge=0, le=20, description="One more is a `redirect_loop`.")] = 10
    ip_family: Annotated[
        Literal["auto", "4", "6"], Field(description="`auto` races over all addresses of the name.")
    ] = "auto"
    http_version: Annotated[
        Literal["auto", "1.1", "2"],
        Field(description="`auto` lets the server choose in the TLS handshake; `2` fails when it has no HTTP/2."),
    ] = "1.1"
    resolver: Annotated[
        list[NameServer],
        Field(max_length=4, description="Name servers to ask instead of the system's, as `address:port`."),
    ] = []
    proxy: Annotated[Proxy | None, Field(description="An HTTP or SOCKS5 proxy to go through.")] = None
    tls: Annotated[HttpTls, Field(description="For https.")] = HttpTls()
    assertions: Annotated[
        list[Assertion],
        Field(max_length=MAX_ASSERTIONS, description="Without one on `status` it has to be 200 to 299."),
    ] = []

    @model_validator(mode="before")
    @classmethod
    def _userinfo_becomes_auth(cls, data: Any) -> Any:
        if (found := userinfo_in(data)) is None:
            return data
        url, userinfo = found
        if data.get("auth") is not None:
            raise ValueError("user and password are given in the URL and in 'auth': remove them from the URL")
        return {**data, "url": url, "auth": {"kind": "basic", "username": userinfo[0], "password": userinfo[1]}}

    @field_validator("url")
    @classmethod
    def _dialable(cls, url: str) -> str:
        parse_url(url)
        return url

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.method == "HEAD":
            if self.body is not None:
                raise ValueError("body: a HEAD request carries none: use POST, or remove the body")
            if any(assertion.source in BODY_SOURCES for assertion in self.assertions):
                raise ValueError("assertions: the answer to HEAD has no body to look at: use GET")
        if self.auth and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: Authorization and 'auth' exclude each other: keep one of them")
        if self.proxy and self.http_version == "2" and f"{self.url} {self.proxy.url}".count("http://") == 2:
            raise ValueError("http_version: an HTTP proxy takes plain requests in HTTP/1.1 only")
        if self.proxy and self.resolver:
            raise ValueError("resolver: behind a proxy it is the proxy that resolves names: keep one of them")
        return self

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Every secret of this check in the forms in which an answer might repeat it."""
        return secrets_of(self)

    @cached_property
    def sensitive_headers(self) -> frozenset[str]:
        """Headers of the answer, in lower case, that assertions look at and results must not quote."""
        looked_at = (assertion.path or "" for assertion in self.assertions if assertion.source == "header")
        return frozenset(name.lower() for name in looked_at if is_sensitive_header(name))

    @cached_property
    def wants_body(self) -> bool:
        """Whether any assertion looks at the body."""
        return any(assertion.source in BODY_SOURCES for assertion in self.assertions)

    @cached_property
    def searches(self) -> bool:
        """Whether judging goes through the whole of a JSON document, any number of times."""
        return any(
            each.source == "json_schema" or (each.source == "json" and not is_simple(each.path or "$"))
            for each in self.assertions
        )

    @cached_property
    def pattern_size(self) -> int:
        """The sizes of all patterns together: what they cost for each character."""
        texts = (each.value for each in self.assertions if each.operator is Operator.MATCHES)
        return sum(compile_pattern(text).programsize for text in texts if isinstance(text, str))


class HttpCheck(HttpRequest):
    """One request. User and password inside ``url`` are moved into ``auth``."""

    kind: Literal["http"] = "http"
    invert: Annotated[bool, Field(description="Being down is what is expected; see below.")] = False

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.proxy is None:
            refuse_other_family(parse_url(self.url).host, self.ip_family)
        if self.invert and self.tls.report_changes:
            raise ValueError("tls.report_changes: what is expected to be down has no certificate to compare")
        return self
