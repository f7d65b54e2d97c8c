"""Settings of the API process."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from shared.settings import ChannelSettings, DatabaseSettings, JobSettings, SealingSettings, TargetSettings


class ApiSettings(DatabaseSettings, SealingSettings, TargetSettings, ChannelSettings, JobSettings):
    """What ``tocsin api`` reads."""

    api_host: str = Field(default="127.0.0.1", description="Address the API listens on.")
    api_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8000, description="Port the API listens on; 0 picks a free one."
    )
    database_pool: Annotated[int, Field(ge=1, le=200)] = Field(
        default=10, description="Connections to PostgreSQL that are kept open per role."
    )
    heartbeat_url: SecretStr | None = Field(
        default=None, description="URL of a watcher outside that is asked regularly while this installation works."
    )
    heartbeat_seconds: Annotated[float, Field(ge=1, le=86_400)] = Field(
        default=60.0, description="Seconds between two heartbeats to that watcher."
    )

    @field_validator("heartbeat_url")
    @classmethod
    def _heartbeat_scheme(cls, url: SecretStr | None) -> SecretStr | None:
        if url and not url.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("the URL starts with http:// or https://")
        return url
