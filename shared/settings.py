"""Configuration from the environment; read only where a process starts, passed down as values."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.domain.canary import canary_check
from shared.domain.mail_server import parse_smtp_url
from shared.domain.region import region_problem

PREFIX = "TOCSIN_"
Network = IPv4Network | IPv6Network


class ConfigurationError(Exception):
    """A setting that stops the process at its start: one line with the variable, the problem and the mend."""

    def __init__(self, variable: str, problem: str, mend: str) -> None:
        self.variable, self.problem, self.mend = variable, problem, mend
        super().__init__(f"{variable}: {problem}. {mend}")


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Settings(BaseSettings):
    """The base of all settings: one prefix, and no value in any error."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", hide_input_in_errors=True)


def _number(value: object) -> object:
    """The environment knows only text, and a literal is not converted."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


class CommonSettings(Settings):
    """What every process reads."""

    nats_url: Annotated[list[str], NoDecode, Field(min_length=1)] = Field(
        default=["nats://127.0.0.1:4222"], description="NATS servers, comma separated; may carry user:password@."
    )
    log_format: Literal["json", "console"] = Field(default="json", description="Form of the log lines on stderr.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least severe level that is logged."
    )
    nats_replicas: Annotated[Literal[1, 3, 5], BeforeValidator(_number)] = Field(
        default=1, description="Replicas of the streams and buckets: 3 on a cluster of three servers."
    )

    @field_validator("nats_url", mode="before")
    @classmethod
    def _urls(cls, value: object) -> object:
        return _split(value)

    @field_validator("nats_url")
    @classmethod
    def _schemes(cls, urls: list[str]) -> list[str]:
        if not all(url.startswith(("nats://", "tls://")) for url in urls):
            raise ValueError("each URL starts with nats:// or tls://")
        return urls


class DatabaseSettings(CommonSettings):
    """For processes that talk to PostgreSQL."""

    database_url: SecretStr = Field(description="PostgreSQL: postgresql://user:password@host:5432/database.")

    @field_validator("database_url")
    @classmethod
    def _scheme(cls, url: SecretStr) -> SecretStr:
        if not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("the URL starts with postgresql://")
        return url


class SealingSettings(Settings):
    """For processes that seal or open the secrets of monitors."""

    secret_keys: Annotated[list[SecretStr], NoDecode, Field(min_length=1)] = Field(
        description="Keys of 32 characters or more, comma separated: the first encrypts, all decrypt."
    )

    @field_validator("secret_keys", mode="before")
    @classmethod
    def _keys(cls, value: object) -> object:
        return _split(value)

    @field_validator("secret_keys")
    @classmethod
    def _long_enough(cls, keys: list[SecretStr]) -> list[SecretStr]:
        if any(len(key.get_secret_value()) < 32 for key in keys):
            raise ValueError("each key needs at least 32 characters")
        return keys


class TargetSettings(Settings):
    """Which addresses checks may touch."""

    allow_private_targets: bool = Field(
        default=False, description="Let checks reach loopback, private and link-local addresses."
    )
    allowed_networks: Annotated[list[Network], NoDecode] = Field(
        default=[], description="Networks that checks may reach although they are private, comma separated CIDRs."
    )

    @field_validator("allowed_networks", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        return _split(value)


class JobSettings(Settings):
    """For processes that run the platform's own jobs."""

    retention_days: Annotated[int, Field(ge=7, le=3650)] = Field(
        default=90, description="Days for which results are kept; older ones are dropped."
    )
    dead_letter_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        default=30, description="Days for which dead letters are kept."
    )


class ChannelSettings(Settings):
    """For processes that send notifications."""

    smtp_url: SecretStr | None = Field(
        default=None,
        description="Mail server of channels without one: smtps://user:password@host:465; smtp:// is STARTTLS.",
    )
    smtp_from: str | None = Field(
        default=None, pattern=r"^[^@\s]+@[^@\s]+$", description="From address of mails that this server sends."
    )
    apprise: bool = Field(
        default=False,
        description="Allow channels of the kind apprise, whose own HTTP client the address guard cannot hold.",
    )

    @field_validator("smtp_url")
    @classmethod
    def _mail_server(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parse_smtp_url(url.get_secret_value())
        return url


class ProbeSettings(Settings):
    """For processes that serve their health beside their work."""

    metrics_host: str = Field(default="127.0.0.1", description="Where /livez, /readyz and /metrics listen.")
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=9100, description="Port of /livez, /readyz and /metrics; 0 picks a free one."
    )
    ready_file: str = Field(
        default="/tmp/ready",  # noqa: S108 the contract's default, a mark for probes without content
        description="Exists exactly while the process is ready.",
    )


class CanarySettings(Settings):
    """For workers that are to doubt themselves first."""

    canaries: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="URLs, hosts or host:port that this worker must be able to reach, comma separated: while all "
        "of them fail, its failures are not held against the targets.",
    )

    @field_validator("canaries", mode="before")
    @classmethod
    def _canaries(cls, value: object) -> object:
        return _split(value)

    @field_validator("canaries")
    @classmethod
    def _usable(cls, canaries: list[str]) -> list[str]:
        for canary in canaries:
            canary_check(canary)
        return canaries


class RegionSettings(Settings):
    """For workers."""

    region: str = Field(default="default", description="The region whose checks this worker runs.")

    @field_validator("region")
    @classmethod
    def _token(cls, region: str) -> str:
        if problem := region_problem(region):
            raise ValueError(problem)
        return region


SettingsType = TypeVar("SettingsType", bound=BaseSettings)


def load(settings: type[SettingsType], **overrides: Any) -> SettingsType:
    """Read settings from the environment.

    Raises ``ConfigurationError`` for the first wrong or missing value.
    """
    try:
        return settings(**overrides)
    except ValidationError as error:
        raise _configuration_error(settings, error.errors(include_url=False, include_input=False)[0]) from None


def problems(settings: type[BaseSettings]) -> list[ConfigurationError]:
    """Every wrong or missing value of the environment; ``load`` raises the first of them."""
    try:
        settings()
    except ValidationError as error:
        return [
            _configuration_error(settings, each) for each in error.errors(include_url=False, include_input=False)
        ]
    return []


def _configuration_error(settings: type[BaseSettings], error: ErrorDetails) -> ConfigurationError:
    name = str(error["loc"][0]) if error["loc"] else ""
    variable = f"{PREFIX}{name.upper()}"
    field = settings.model_fields.get(name)
    mend = (field.description or "") if field else ""
    if error["type"] == "missing":
        return ConfigurationError(variable, "is not set", f"Set it. {mend}")
    return ConfigurationError(variable, error["msg"].removeprefix("Value error, "), f"Expected: {mend}")
