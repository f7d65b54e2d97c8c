"""Cookies within one check: what a redirect sets, the next hop needs; the next check starts without (RFC 6265)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

from shared.domain.clock import to_milliseconds
from shared.domain.url import Url, is_address
from shared.http.request import Request

MAX_COOKIES = 50
MAX_COOKIE_SIZE = 4096


@dataclass(frozen=True, slots=True)
class _Cookie:
    name: str
    value: str
    domain: str
    host_only: bool
    path: str
    secure: bool

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name, self.domain, self.path

    def goes_to(self, url: Url) -> bool:
        same_host = url.host == self.domain
        in_domain = same_host or (not self.host_only and url.host.endswith("." + self.domain))
        return in_domain and _path_matches(_path(url), self.path) and (url.scheme == "https" or not self.secure)


class CookieJar:
    """The cookies of one check. ``now_ms`` decides which of them have expired on arrival."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._cookies: dict[tuple[str, str, str], _Cookie] = {}

    def store_all(self, url: Url, headers: Iterable[tuple[str, str]]) -> None:
        """Take every Set-Cookie field of an answer."""
        for name, value in headers:
            if name == "set-cookie":
                self.store(url, value)

    def equip(self, request: Request) -> Request:
        """The request with the cookies that go to its address."""
        return replace(request, cookies=self.header(request.url) or None)

    def values(self) -> dict[str, str]:
        """The values by name; of several cookies of one name that of the one which came last."""
        return {cookie.name: cookie.value for cookie in self._cookies.values()}

    def store(self, url: Url, set_cookie: str) -> None:
        """Take one Set-Cookie field; a cookie that this host may not set is ignored."""
        pair, *rest = set_cookie.split(";")
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name or len(set_cookie) > MAX_COOKIE_SIZE or not _sendable(name + value):
            return
        attributes = {key.strip().lower(): text.strip() for key, _, text in (each.partition("=") for each in rest)}
        cookie = _cookie(url, name, value, attributes)
        if cookie is None:
            return
        if self._expired(attributes):
            self._cookies.pop(cookie.key, None)
        elif len(self._cookies) < MAX_COOKIES or cookie.key in self._cookies:
            self._cookies[cookie.key] = cookie

    def header(self, url: Url) -> str:
        """The Cookie field for a request, longest paths first; empty when there is nothing to send."""
        fitting = [cookie for cookie in self._cookies.values() if cookie.goes_to(url)]
        fitting.sort(key=lambda cookie: -len(cookie.path))
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in fitting)

    def _expired(self, attributes: dict[str, str]) -> bool:
        try:
            if "max-age" in attributes:
                return int(attributes["max-age"]) <= 0
            if "expires" in attributes:
                return to_milliseconds(parsedate_to_datetime(attributes["expires"])) <= self._now_ms
        except (ValueError, OverflowError):
            pass  # RFC 6265 section 5.2: an attribute that cannot be read is ignored
        return False


def _cookie(url: Url, name: str, value: str, attributes: dict[str, str]) -> _Cookie | None:
    domain = attributes.get("domain", "").removeprefix(".").lower()
    if domain and domain != url.host and (is_address(url.host) or not _may_set(url.host, domain)):
        return None
    path = attributes.get("path", "")
    return _Cookie(
        name,
        value,
        domain or url.host,
        host_only=not domain,
        path=path if path.startswith("/") else _path(url).rpartition("/")[0] or "/",
        secure="secure" in attributes,
    )


def _may_set(host: str, domain: str) -> bool:
    return "." in domain and host.endswith("." + domain)


def _path(url: Url) -> str:
    return url.target.partition("?")[0]


def _path_matches(path: str, cookie_path: str) -> bool:
    return path == cookie_path or path.startswith(cookie_path if cookie_path.endswith("/") else cookie_path + "/")


def _sendable(text: str) -> bool:
    return all(" " <= character <= "~" for character in text)
