"""Which process reads which settings: the one list that the documentation and the doctor go by."""

from __future__ import annotations

from typing import Final

from api.settings import ApiSettings
from monitoring_scheduler.settings import SchedulerSettings
from monitoring_worker.settings import WorkerSettings
from shared.settings import PREFIX, Settings

PROCESSES: Final[dict[str, type[Settings]]] = {
    "api": ApiSettings,
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
}


def readers() -> dict[str, list[str]]:
    """Each variable with the processes that read it, in the order of their declaration."""
    found: dict[str, list[str]] = {}
    for process, settings in PROCESSES.items():
        for name in settings.model_fields:
            found.setdefault(f"{PREFIX}{name.upper()}", []).append(process)
    return found
