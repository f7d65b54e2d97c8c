"""A TCP connection to one of several addresses: the first that answers wins (RFC 8305)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

from shared.domain.errors import ErrorKind
from shared.http.errors import TargetError, connect_error
from shared.http.wire import Wire

HEAD_START = 0.25
"""Seconds an address has for itself before the next one is tried beside it (RFC 8305 section 5)."""


Tried = dict[str, ErrorKind | None]
"""Addresses (with their port) that were dialled, and how each failed; null while it has not."""


async def dial(
    addresses: Sequence[str], port: int, monotonic: Callable[[], float], tried: Tried | None = None
) -> Wire:
    """Connect; raises ``TargetError`` once all addresses have failed. The caller sets the deadline.

    ``tried`` is filled, for the caller to see also after a failure.
    """
    tried = {} if tried is None else tried
    if len(addresses) == 1:
        outcome = await _connect(addresses[0], port, monotonic, tried)
        if isinstance(outcome, Wire):
            return outcome
        raise outcome
    return await _race(deque(_alternating(addresses)), port, monotonic, tried)


async def _race(waiting: deque[str], port: int, monotonic: Callable[[], float], tried: Tried) -> Wire:
    running: set[asyncio.Task[Wire | TargetError]] = set()
    failures: list[TargetError] = []
    winner: Wire | None = None
    try:
        while winner is None and (waiting or running):
            if waiting:
                running.add(asyncio.create_task(_connect(waiting.popleft(), port, monotonic, tried)))
            finished, running = await asyncio.wait(
                running, timeout=HEAD_START if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in finished:
                outcome = task.result()
                if isinstance(outcome, TargetError):
                    failures.append(outcome)
                elif winner is None:
                    winner = outcome
                else:
                    outcome.close()
    finally:
        await _call_off(running)
    if winner is None:
        raise _most_telling(failures)
    return winner


async def _call_off(running: set[asyncio.Task[Wire | TargetError]]) -> None:
    for task in running:
        task.cancel()
    for outcome in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(outcome, Wire):
            outcome.close()


async def _connect(address: str, port: int, monotonic: Callable[[], float], tried: Tried) -> Wire | TargetError:
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    tried[where] = None
    wire = Wire(monotonic)
    try:
        await asyncio.get_running_loop().create_connection(lambda: wire, address, port)
    except OSError as error:
        failure = connect_error(error, where)
        tried[where] = failure.error.kind
        return failure
    except asyncio.CancelledError:
        wire.close()
        raise
    wire.address = where
    return wire


def _alternating(addresses: Sequence[str]) -> list[str]:
    """Both families in turn, beginning with the one the system prefers, so that a dead family costs one step."""
    first = ":" in addresses[0]
    preferred = [address for address in addresses if (":" in address) is first]
    others = [address for address in addresses if (":" in address) is not first]
    return [address for address in chain.from_iterable(zip_longest(preferred, others)) if address]


def _most_telling(failures: list[TargetError]) -> TargetError:
    """A refusal says more than a network that is not there, which is what IPv6 looks like on many machines."""
    told = [failure for failure in failures if failure.error.kind is not ErrorKind.CONNECT_UNREACHABLE] or failures
    others = "; ".join(failure.error.message for failure in failures if failure is not told[0])
    return TargetError(told[0].error.kind, f"{told[0].error.message}; {others}")
