"""A scheduler in small, as a process of its own: publishes whenever it holds the lease, ends on SIGTERM.

Prints ``<what> <monotonic time>`` a line; that clock is the same for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from shared.messaging.connect import connect
from shared.messaging.leader import LeaderElection
from shared.messaging.streams import ensure_streams


def say(what: str, moment: float) -> None:
    print(what, moment, flush=True)


async def main(url: str, name: str, ttl: int) -> None:
    connection = await connect([url], name=name, buffer_writes=False)
    await ensure_streams(connection.js)
    election = LeaderElection(
        connection, name, ensure=lambda: ensure_streams(connection.js), ttl=ttl, beat=0.35 * ttl
    )
    election.add_listener(lambda leads, _: say("leads" if leads else "follows", time.monotonic()))
    running = asyncio.create_task(election.run())
    say("competes", time.monotonic())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        moment = time.monotonic()  # before it is asked: it may be frozen between the answer and the line
        if election.holds and connection.is_connected:
            say("dispatch", moment)
        await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
