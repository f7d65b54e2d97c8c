"""Settings of a worker process."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import Field, SecretStr, ValidationInfo, ValidatorFunctionWrapHandler, field_validator
from pydantic_core import PydanticKnownError

from shared.settings import (
    CanarySettings,
    ChannelSettings,
    DatabaseSettings,
    JobSettings,
    ProbeSettings,
    RegionSettings,
    SealingSettings,
    Settings,
    TargetSettings,
)


class RecorderSettings(Settings):
    """The last of the bases, so that this is known when the database's URL is looked at."""

    recorder: bool = Field(
        default=True, description="Whether this worker also writes results; off for workers without a database."
    )


class WorkerSettings(
    DatabaseSettings,
    SealingSettings,
    TargetSettings,
    ProbeSettings,
    RegionSettings,
    CanarySettings,
    ChannelSettings,
    JobSettings,
    RecorderSettings,
):
    """What ``tocsin worker`` reads."""

    worker_concurrency: Annotated[int, Field(ge=1, le=5000)] = Field(
        default=500, description="Checks that run at the same time in one worker."
    )
    database_url: SecretStr = Field(
        default=SecretStr(""),
        validate_default=True,
        description="PostgreSQL: postgresql://user:password@host:5432/database; not needed without the recorder.",
    )

    @field_validator("database_url", mode="wrap")
    @classmethod
    def _needed_to_record(
        cls, url: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> SecretStr:
        if url:
            return cast("SecretStr", handler(url))
        if info.data.get("recorder", True):
            raise PydanticKnownError("missing")
        return SecretStr("")
