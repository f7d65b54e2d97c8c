"""Does this PostgreSQL answer? Asked without a driver, so that a supervisor stays small."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

_PROTOCOL_3 = 196608
_READY_FOR_QUERY = b"Z"
_ERROR = b"E"
_TERMINATE = b"X\x00\x00\x00\x04"
_ANSWER_SECONDS = 2.0


async def answers(socket: Path, role: str, database: str) -> bool:
    """Whether ``role`` can log in: false while the server is away, starting, stopping or frozen."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            try:
                writer.write(_startup_message(role, database))
                logged_in = await _reads_ready(reader)
                writer.write(_TERMINATE)
                await writer.drain()
            finally:
                writer.close()
            return logged_in
    except (OSError, EOFError, TimeoutError):
        return False


def _startup_message(role: str, database: str) -> bytes:
    parameters = "".join(f"{part}\0" for part in ("user", role, "database", database, "")).encode()
    return struct.pack("!ii", 8 + len(parameters), _PROTOCOL_3) + parameters


async def _reads_ready(reader: asyncio.StreamReader) -> bool:
    while True:
        kind = await reader.readexactly(1)
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        await reader.readexactly(length - 4)
        if kind in {_READY_FOR_QUERY, _ERROR}:
            return kind == _READY_FOR_QUERY
