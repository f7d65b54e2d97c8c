"""Certificates that nobody accepted and that take turns with accepted ones, as those of two backends do.

Each turn would end the incident and open it again. So once such a certificate has come back, what is shown in
between keeps it open, until somebody accepts it or it has not been shown for an hour. One that only came and went
ends its incident at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from shared.contracts.wire import ResultMessage
from shared.db.repositories.certificates import Pair

HELD_MS: Final = 3_600_000
REMEMBERED: Final = 10_000
"""Places at which a recorder remembers such a certificate: about 5 MB. What it forgets is told once more."""

Place = tuple[UUID, str]
"""A monitor and a region: regions may well see different backends."""


@dataclass(slots=True)
class _Turn:
    """The certificate that was reported last at a place. ``newest_ms`` is the last slot that counted."""

    pair: Pair
    shown_ms: int
    newest_ms: int
    has_left: bool = False
    has_returned: bool = False


class CertificateTurns:
    """What one recorder saw of this; one that has just started tells a turn once more."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._limit = remembered
        self._turns: OrderedDict[Place, _Turn] = OrderedDict()

    def pairs(self, messages: Iterable[ResultMessage]) -> set[Pair]:
        """The certificates that may keep something open at the places of these results."""
        places = {(message.monitor_id, message.region) for message in messages}
        return {self._turns[place].pair for place in places if place in self._turns}

    def show_reported(self, message: ResultMessage, pair: Pair) -> None:
        """A certificate was shown that is being reported. To be called in the order of slots."""
        place = message.monitor_id, message.region
        turn = self._turns.get(place)
        if turn is None:
            self._turns[place] = _Turn(pair, message.slot_ms, message.slot_ms)
            if len(self._turns) > self._limit:
                self._turns.popitem(last=False)
        elif message.slot_ms > turn.newest_ms:  # a batch that is tried again is no second turn
            turn.pair, turn.shown_ms, turn.newest_ms = pair, message.slot_ms, message.slot_ms
            turn.has_returned = turn.has_returned or turn.has_left
            turn.has_left = False

    def show_other(self, message: ResultMessage, reported: Iterable[Pair]) -> Pair | None:
        """A certificate was shown that is not reported; answers the one that keeps an incident open, if any.

        ``reported`` are the certificates that are still being reported. To be called in the order of slots.
        """
        place = message.monitor_id, message.region
        turn = self._turns.get(place)
        if turn is None:
            return None
        if turn.pair not in reported or message.slot_ms - turn.shown_ms >= HELD_MS:
            del self._turns[place]
            return None
        if message.slot_ms > turn.newest_ms:
            turn.has_left, turn.newest_ms = True, message.slot_ms
        return turn.pair if turn.has_returned else None
