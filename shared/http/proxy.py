"""The way through a proxy: dialled through the guarded door like any target, then asked to go on from there.

What the guard can know behind one is only what is written: an address in the URL is judged, a name is resolved by
the proxy and stays unknown. Whoever lets checks use a proxy trusts its rules for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from ipaddress import ip_address

from shared.domain.errors import ErrorKind
from shared.domain.route import Proxy, split_proxy
from shared.domain.url import Url, is_address
from shared.http.door import Door
from shared.http.errors import BlockedError, HttpError, TargetError
from shared.http.inbox import Inbox
from shared.http.request import basic
from shared.http.wire import Wire

_HEAD_LIMIT = 16384
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")
_GATEWAY_KINDS = {
    502: ErrorKind.CONNECT_UNREACHABLE,
    503: ErrorKind.CONNECT_UNREACHABLE,
    504: ErrorKind.CONNECT_TIMEOUT,
}
_SOCKS_REPLIES = {
    1: (ErrorKind.CONNECT_UNREACHABLE, "a general failure"),
    2: (ErrorKind.CONNECT_REFUSED, "its rules do not allow the connection"),
    3: (ErrorKind.CONNECT_UNREACHABLE, "the network cannot be reached"),
    4: (ErrorKind.CONNECT_UNREACHABLE, "the host cannot be reached"),
    5: (ErrorKind.CONNECT_REFUSED, "the target refused the connection"),
    6: (ErrorKind.CONNECT_TIMEOUT, "the target did not answer"),
}


def forwards(proxy: Proxy, url: Url) -> bool:
    """Whether the proxy is sent the request itself, instead of being asked for a tunnel to the target."""
    return proxy.url.startswith("http:") and url.scheme == "http"


def proxy_fields(proxy: Proxy) -> tuple[tuple[str, str], ...]:
    """The fields that an HTTP proxy wants of its users."""
    if proxy.username is None:
        return ()
    return (("Proxy-Authorization", basic(proxy.username, proxy.password or "")),)


async def open_through(
    proxy: Proxy, door: Door, url: Url, open_door: Callable[[str, int], Awaitable[Wire]]
) -> Wire:
    """A wire that ends at the target, or for a plain request to an HTTP proxy at that.

    Raises ``TargetError``, which says what the proxy said, or ``BlockedError``. ``open_door`` is the door's own
    ``open`` with how to go there.
    """
    door.refuse_literal(url.host)
    kind, host, port = split_proxy(proxy.url)
    try:
        wire = await open_door(host, port)
    except BlockedError:
        raise
    except HttpError as error:
        raise TargetError(error.error.kind, f"the proxy: {error.error.message}") from None
    if forwards(proxy, url):
        return wire
    try:
        talk = _Talk(wire)
        await (_socks(talk, proxy, url) if kind == "socks5" else _connect(talk, proxy, url))
    except BaseException:
        wire.close()
        raise
    wire.connected_at = door.monotonic()
    return wire


class _Talk:
    """Questions to a proxy and exact reading of its answers."""

    def __init__(self, wire: Wire) -> None:
        self._inbox = Inbox()
        self._wire = wire
        self.unread = b""
        wire.attach(self._inbox)

    def send(self, data: bytes) -> None:
        self._wire.send(data)

    async def more(self) -> None:
        data = await self._inbox.more()
        if not data:
            raise TargetError(
                ErrorKind.PROTOCOL_ERROR, "the proxy closed the connection before the tunnel was open"
            )
        self.unread += data

    async def take(self, count: int) -> bytes:
        while len(self.unread) < count:
            await self.more()
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    async def head(self) -> bytes:
        while (end := self.unread.find(b"\r\n\r\n")) < 0:
            if len(self.unread) > _HEAD_LIMIT:
                raise TargetError(ErrorKind.PROTOCOL_ERROR, "the proxy's answer has no end")
            await self.more()
        return await self.take(end + 4)


async def _connect(talk: _Talk, proxy: Proxy, url: Url) -> None:
    """The method CONNECT of an HTTP proxy (RFC 9110 section 9.3.6)."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    fields = "".join(f"{name}: {value}\r\n" for name, value in proxy_fields(proxy))
    talk.send(f"CONNECT {host}:{url.port} HTTP/1.1\r\nHost: {host}:{url.port}\r\n{fields}\r\n".encode("ascii"))
    head = await talk.head()
    line = _STATUS_LINE.match(head)
    if line is None:
        raise TargetError(ErrorKind.PROTOCOL_ERROR, "the proxy's answer is not HTTP")
    status = int(line[1])
    if status == 407:
        raise refused_by_proxy(proxy)
    if not 200 <= status < 300:
        kind = _GATEWAY_KINDS.get(status, ErrorKind.CONNECT_REFUSED)
        raise TargetError(kind, f"the proxy opened no tunnel to {host}:{url.port}: status {status}")


def refused_by_proxy(proxy: Proxy) -> TargetError:
    """What a 407 means."""
    told = "demands a user name and password" if proxy.username is None else "refused the user name or password"
    return TargetError(ErrorKind.AUTH_FAILED, f"the proxy {told} (status 407)")


async def _socks(talk: _Talk, proxy: Proxy, url: Url) -> None:
    """SOCKS 5 (RFC 1928) with user name and password (RFC 1929); the name of the target goes as it is."""
    talk.send(b"\x05\x01\x00" if proxy.username is None else b"\x05\x02\x00\x02")
    version, method = await talk.take(2)
    if version != 5:
        raise TargetError(ErrorKind.PROTOCOL_ERROR, "the proxy's answer is not SOCKS 5")
    if method == 2 and proxy.username is not None:
        await _socks_login(talk, proxy.username, proxy.password or "")
    elif method != 0:
        raise TargetError(ErrorKind.AUTH_FAILED, "the proxy accepts none of our ways to log in")
    talk.send(b"\x05\x01\x00" + _socks_address(url.host) + url.port.to_bytes(2))
    version, reply, _, kind = await talk.take(4)
    if version != 5 or kind not in {1, 3, 4}:
        raise TargetError(ErrorKind.PROTOCOL_ERROR, "the proxy's answer is not SOCKS 5")
    if reply:
        error, told = _SOCKS_REPLIES.get(reply, (ErrorKind.PROTOCOL_ERROR, f"reply {reply}"))
        raise TargetError(error, f"the proxy opened no connection to {url.host}:{url.port}: {told}")
    size = {1: 4, 4: 16}.get(kind) or (await talk.take(1))[0]
    await talk.take(size + 2)


async def _socks_login(talk: _Talk, username: str, password: str) -> None:
    user, secret = username.encode(), password.encode()
    talk.send(b"\x01" + bytes([len(user)]) + user + bytes([len(secret)]) + secret)
    _, status = await talk.take(2)
    if status:
        raise TargetError(ErrorKind.AUTH_FAILED, "the proxy refused the user name or password")


def _socks_address(host: str) -> bytes:
    if not is_address(host):
        name = host.encode("ascii")
        return b"\x03" + bytes([len(name)]) + name
    address = ip_address(host)
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed
