"""The way to a target that a check may name: other name servers, or a proxy."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from shared.domain.spec import Secret, Strict
from shared.domain.url import normalise_host, userinfo_in

DNS_PORT = 53
_PROXY_PORTS = {"http": 8080, "socks5": 1080}
_SERVER_MEND = "write a name server as address or address:port, for example 1.1.1.1:53 or [2606:4700::1111]:53"


def split_server(text: str) -> tuple[str, int]:
    """Address and port of a name server; raises ``ValueError``. Names are refused: who would resolve them?"""
    try:
        if text.startswith("["):
            host, _, port = text[1:].partition("]")
            port = port.removeprefix(":") if port.startswith(":") else port
        else:
            host, _, port = (text, "", "") if text.count(":") > 1 else text.partition(":")
        number = int(port) if port else DNS_PORT
        address = str(ip_address(host))
    except ValueError:
        raise ValueError(_SERVER_MEND) from None
    if not 1 <= number <= 65535 or not ((port.isascii() and port.isdigit()) or not port) or "%" in address:
        raise ValueError(_SERVER_MEND)
    return address, number


def _normal_server(text: str) -> str:
    address, port = split_server(text)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


NameServer = Annotated[str, Field(max_length=64), AfterValidator(_normal_server)]


class Proxy(Strict):
    """An HTTP proxy (``CONNECT`` for https) or a SOCKS5 proxy, which resolves the names too.

    User and password inside ``url`` are moved into their own fields.
    """

    url: Annotated[
        str, Field(max_length=512, description="`http://host:port` (default 8080) or `socks5://host:port` (1080).")
    ]
    username: Annotated[str | None, Field(min_length=1, max_length=255, description="If it wants a login.")] = None
    password: Annotated[str | None, Field(max_length=255), Secret()] = None

    @model_validator(mode="before")
    @classmethod
    def _userinfo_becomes_fields(cls, data: Any) -> Any:
        if (found := userinfo_in(data)) is None:
            return data
        url, userinfo = found
        if data.get("username") is not None or data.get("password") is not None:
            raise ValueError("user and password are given twice: remove them from the URL of the proxy")
        return {**data, "url": url, "username": userinfo[0], "password": userinfo[1]}

    @field_validator("url")
    @classmethod
    def _dialable(cls, url: str) -> str:
        split_proxy(url)
        return url

    @field_validator("username", "password")
    @classmethod
    def _sendable(cls, text: str | None) -> str | None:
        if text and (not text.isprintable() or len(text.encode()) > 255):
            raise ValueError("at most 255 bytes and no control characters can be sent to a proxy")
        return text

    @model_validator(mode="after")
    def _consistent(self) -> Proxy:
        if self.password is not None and self.username is None:
            raise ValueError("username: a password goes with a user name")
        if self.username and ":" in self.username and self.url.startswith("http:"):
            raise ValueError("username: it cannot contain ':' in basic authentication (RFC 7617)")
        return self


def split_proxy(url: str) -> tuple[str, str, int]:
    """Kind (``http`` or ``socks5``), host and port; raises ``ValueError`` that names the mend."""
    parts = urlsplit(url)
    if parts.scheme not in _PROXY_PORTS or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("write a proxy as http://host:port or socks5://host:port")
    if "@" in parts.netloc:
        raise ValueError("user and password of a proxy belong into 'username' and 'password'")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port of the proxy must be a number from 1 to 65535") from None
    return parts.scheme, normalise_host(parts.hostname or ""), port or _PROXY_PORTS[parts.scheme]
