"""Names to addresses, asked of the system so that hosts files, search lists and every name service count.

The system's call blocks, and neither asyncio's shared pool nor uvloop's survives a handful of slow names. Here
they have threads of their own, as daemons: a lookup that hangs delays neither other lookups nor our exit.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from queue import SimpleQueue
from typing import Literal, Protocol

from shared.http.errors import OverloadedError, name_error

Family = Literal["auto", "4", "6"]
MAX_THREADS = 256
"""Names that are looked up at the same time: while a zone is away each of its names takes a thread for as long as
the system tries, which is up to half a minute.
"""

PATIENCE = 0.5
"""Seconds that a name waits for a thread to be free."""

_FAMILIES = {"auto": socket.AF_UNSPEC, "4": socket.AF_INET, "6": socket.AF_INET6}


class Resolver(Protocol):
    """What the door needs of a name service."""

    async def resolve(self, host: str, family: Family) -> tuple[str, ...]:
        """All addresses of a host, best first; raises ``TargetError`` when there is none."""
        ...


class SystemResolver:
    """``getaddrinfo`` on daemon threads, started as they are needed.

    When all of them hang, further names are no evidence: ``OverloadedError`` is raised instead of ``TargetError``.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._max_threads = max_threads
        self._threads = 0
        self._busy = 0
        self._free = asyncio.Semaphore(max_threads)

    async def resolve(self, host: str, family: Family) -> tuple[str, ...]:
        if literal(host, family):
            return (host,)
        answer = await self._look_up(host, family)
        if isinstance(answer, OSError):
            raise name_error(answer, host)
        return answer

    async def _look_up(self, host: str, family: Family) -> tuple[str, ...] | OSError:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[str, ...] | OSError] = loop.create_future()

        def deliver(answer: tuple[str, ...] | OSError) -> None:
            self._busy -= 1  # only now: the thread of a lookup that timed out is still taken
            self._free.release()
            if not answered.done():
                answered.set_result(answer)

        def ask() -> None:
            answer = () if answered.cancelled() else _getaddrinfo(host, family)
            try:
                loop.call_soon_threadsafe(deliver, answer)
            except RuntimeError:
                pass  # the loop was closed while the name service dawdled; nobody is waiting

        await self._take_a_place()
        self._submit(ask)
        return await answered

    async def _take_a_place(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._free.acquire()
        except TimeoutError:
            raise OverloadedError(f"{self._max_threads} names are being looked up, and none is answered") from None

    def _submit(self, job: Callable[[], None]) -> None:
        self._busy += 1
        if self._threads < min(self._busy, self._max_threads):
            self._threads += 1
            threading.Thread(target=self._work, name="resolver", daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()


def _getaddrinfo(host: str, family: Family) -> tuple[str, ...] | OSError:
    try:
        found = socket.getaddrinfo(host, None, family=_FAMILIES[family], type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return socket.gaierror(socket.EAI_NONAME, "not a name")
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def literal(host: str, family: Family) -> bool:
    """Whether the host is an address, which needs no lookup; raises ``TargetError`` for one of another family."""
    version = _literal_version(host)
    if version and family not in {"auto", version}:
        raise name_error(socket.gaierror(socket.EAI_ADDRFAMILY, "wrong family"), host)
    return version is not None


@lru_cache(maxsize=4096)
def _literal_version(host: str) -> str | None:
    try:
        return str(ip_address(host).version)
    except ValueError:
        return None
