"""Settings of a worker process."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shared.settings import DatabaseSettings, ProbeSettings, RegionSettings, SealingSettings, TargetSettings


class WorkerSettings(DatabaseSettings, SealingSettings, TargetSettings, ProbeSettings, RegionSettings):
    """What ``tocsin worker`` reads."""

    worker_concurrency: Annotated[int, Field(ge=1, le=5000)] = Field(
        default=500, description="Checks that run at the same time in one worker."
    )
    recorder: bool = Field(
        default=True, description="Whether this worker also writes results; off for workers without a database."
    )
