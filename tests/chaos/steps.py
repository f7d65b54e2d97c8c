"""The steps from a result in the queue to a notification that was sent, each of which a process can die at."""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from monitoring_worker import recorder, sweeping
from monitoring_worker.recorder import Recorder
from monitoring_worker.sweeping import IncidentSweeper
from shared.db.repositories import channels, deliveries, escalations, incidents, outbox, suspicion
from shared.domain import incident
from shared.services import delivering, recording
from shared.services.alerting import AlertRelay
from shared.services.delivering import Notifier
from shared.tasks.queue import TaskQueue

Place = tuple[Any, str]
"""A function: its module or class, and its name."""


@dataclass(frozen=True)
class Step:
    """A function whose process dies before or after it. Calls count only ``once`` another function was called."""

    place: Place
    once: Place | None = None


_TOLD: Place = (incidents, "write_events")
_RELEASED: Place = (incident, "released")
_PLANNED: Place = (deliveries, "add")

STEPS: dict[str, Step] = {
    "recorder: store results": Step((recording, "store_results")),
    "recorder: lock states": Step((recording, "lock_states")),
    "recorder: write incidents": Step((incidents, "save")),
    "recorder: write the timeline and the outbox": Step(_TOLD),
    "recorder: save states": Step((recording, "save_states"), once=_TOLD),
    "recorder: write histories": Step((recording, "write_turns"), once=_TOLD),
    "recorder: record": Step((recorder, "record"), once=_TOLD),
    "recorder: commit": Step((Recorder, "_write"), once=_TOLD),
    "recorder: acknowledge": Step((recorder, "_settle"), once=_TOLD),
    "recorder: take alerts that wait": Step((suspicion, "held")),
    "recorder: release an alert": Step(_RELEASED),
    "recorder: sweep": Step((sweeping, "sweep"), once=_RELEASED),
    "recorder: sweep committed": Step((IncidentSweeper, "sweep"), once=_RELEASED),
    "relay: take changes": Step((escalations, "take_transitions")),
    "relay: lock incidents": Step((escalations, "lock_incidents")),
    "relay: write deliveries": Step(_PLANNED),
    "relay: move the incident on": Step((escalations, "save_progress")),
    "relay: delete changes": Step((outbox, "delete"), once=_PLANNED),
    "relay: take deliveries": Step((deliveries, "take_due"), once=_PLANNED),
    "relay: hand to the queue": Step((TaskQueue, "send")),
    "relay: mark as handed over": Step((deliveries, "mark_queued")),
    "relay: look": Step((AlertRelay, "look_once"), once=_PLANNED),
    "notifier: lock the delivery": Step((deliveries, "lock")),
    "notifier: claim": Step((deliveries, "claim")),
    "notifier: claim committed": Step((Notifier, "_claim")),
    "notifier: send": Step((delivering, "deliver")),
    "notifier: settle": Step((deliveries, "settle")),
    "notifier: note the channel": Step((channels, "note_outcome")),
    "notifier: call the next": Step((deliveries, "release_next")),
    "notifier: write the timeline": Step((deliveries, "note_on_incident")),
    "notifier: outcome committed": Step((Notifier, "_record")),
    "notifier: task done": Step((Notifier, "deliver")),
}


class Fuse:
    """Kills its process at the ``count``-th time of a step, before or after it."""

    def __init__(self, name: str, *, after: bool, count: int) -> None:
        step = STEPS[name]
        self._after, self._left, self._is_lit = after, count, step.once is None
        if step.once is not None:
            _wrap(step.once, lambda: None, self._light)
        _wrap(step.place, self._enter, self._leave)

    def _light(self, found: object) -> None:
        self._is_lit = self._is_lit or _did_something(found)

    def _enter(self) -> None:
        if not self._after:
            self._burn()

    def _leave(self, found: object) -> None:
        if self._after and _did_something(found):
            self._burn()

    def _burn(self) -> None:
        self._left -= self._is_lit
        if self._is_lit and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _did_something(found: object) -> bool:
    """Whether a call is the step, and not a look that found nothing to do."""
    return found is None or bool(found)


def _wrap(place: Place, before: Callable[[], None], after: Callable[[object], None]) -> None:
    owner, name = place
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    async def in_a_task(*arguments: Any, **keywords: Any) -> Any:
        before()
        found = await original(*arguments, **keywords)
        after(found)
        return found

    @functools.wraps(original)
    def at_once(*arguments: Any, **keywords: Any) -> Any:
        before()
        found = original(*arguments, **keywords)
        after(found)
        return found

    setattr(owner, name, in_a_task if inspect.iscoroutinefunction(original) else at_once)
