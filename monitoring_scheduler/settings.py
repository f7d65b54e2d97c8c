"""Settings of a scheduler process."""

from __future__ import annotations

from shared.settings import CommonSettings, ProbeSettings


class SchedulerSettings(CommonSettings, ProbeSettings):
    """What ``tocsin scheduler`` reads."""
