"""A connection that brings more than others lets them have their turn."""

from __future__ import annotations

import asyncio

import pytest

from shared.http.errors import HttpError
from shared.http.wire import TURN, Wire


class _Transport(asyncio.Transport):
    """What the wire asked of its transport."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.closed = False

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")

    def is_closing(self) -> bool:
        return self.closed


class _Reader:
    def __init__(self) -> None:
        self.count = 0

    def received(self, data: bytes) -> None:
        self.count += len(data)

    def ended(self, error: HttpError | None) -> None:
        """Nothing ends here."""


@pytest.mark.parametrize(
    ("pieces", "closed", "asked"),
    [
        pytest.param(4, False, [], id="as much as one turn"),
        pytest.param(5, False, ["pause", "resume"], id="more than one turn"),
        pytest.param(10, False, ["pause", "pause", "resume", "resume"], id="more than two"),
        pytest.param(5, True, ["pause"], id="closed meanwhile"),
    ],
)
async def test_a_flood_is_read_in_turns(pieces: int, closed: bool, asked: list[str]) -> None:
    wire, transport, reader = Wire(asyncio.get_running_loop().time), _Transport(), _Reader()
    wire.connection_made(transport)
    wire.attach(reader)
    for _ in range(pieces):
        wire.data_received(bytes(TURN // 4))
    transport.closed = closed
    await asyncio.sleep(0)
    assert transport.asked == asked
    assert reader.count == pieces * (TURN // 4)
