"""Settings of the API process."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shared.settings import DatabaseSettings, SealingSettings


class ApiSettings(DatabaseSettings, SealingSettings):
    """What ``tocsin api`` reads."""

    api_host: str = Field(default="127.0.0.1", description="Address the API listens on.")
    api_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8000, description="Port the API listens on; 0 picks a free one."
    )
    database_pool: Annotated[int, Field(ge=1, le=200)] = Field(
        default=10, description="Connections to PostgreSQL that are kept open per role."
    )
