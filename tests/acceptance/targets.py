"""A web server that a test can break and mend while monitors watch it."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from pathlib import Path
from types import TracebackType
from typing import Self

import trustme

from shared.testing.nats import free_port


class Target:
    """Serves one answer on a fixed port, over TLS when given a certificate; counts its requests."""

    def __init__(self, certificate: trustme.LeafCert | None = None) -> None:
        self.status = 200
        self.body = b'{"ready": true, "queue": {"depth": 3}}'
        self.requests = 0
        self.port = free_port()
        self._certificate = certificate
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen, on the same port as before."""
        context = None
        if self._certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._certificate.configure_cert(context)
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port, ssl=context)

    async def close(self) -> None:
        """Stop listening: connections are refused."""
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    async def present(self, certificate: trustme.LeafCert) -> None:
        """Serve another certificate from now on."""
        self._certificate = certificate
        await self.close()
        await self.open()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            head = (
                f"HTTP/1.1 {self.status} Whatever\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + self.body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # a check of the certificate alone sends no request
        finally:
            writer.close()


class Authority:
    """A throw-away certificate authority that an installation is told to trust."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._roots = folder / "roots.pem"
        self._ca.cert_pem.write_to_path(str(self._roots))

    @property
    def environment(self) -> dict[str, str]:
        """Makes OpenSSL trust this authority, and only it."""
        return {"SSL_CERT_FILE": str(self._roots)}

    def certificate(self, days_left: int = 90) -> trustme.LeafCert:
        """For ``localhost``; already expired when ``days_left`` is negative."""
        now = dt.datetime.now(dt.UTC)
        end = now + dt.timedelta(days=days_left)
        return self._ca.issue_cert("localhost", not_before=end - dt.timedelta(days=100), not_after=end)
