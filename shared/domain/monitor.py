"""A monitor as its owner describes it: what to check, how often, from where, and when it counts as down."""

from __future__ import annotations

import math
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import Field, field_validator, model_validator

from shared.domain.checks import AnyCheck, CheckSpec, HeartbeatCheck, PingCheck
from shared.domain.dependency import MAX_PARENTS
from shared.domain.incident import DEFAULT_FLAP_WINDOW_SECONDS
from shared.domain.region import region_problem
from shared.domain.spec import Name, Strict

MIN_INTERVAL_SECONDS = 5
MAX_INTERVAL_SECONDS = 86_400
DEFAULT_TIMEOUT_SECONDS = 10.0
SHORTEST_DEFAULT_SECONDS = 0.1
DEFAULT_RETRY_DELAY_SECONDS = 1.0
RETRY_SPREAD = 0.1
"""The share by which the wait before a retry differs from ``retry_delay_seconds``, either way."""
Region = Annotated[str, Field(min_length=1, max_length=32)]


class RunOptions(Strict):
    """How one slot is run: all that a worker needs beside the check itself."""

    timeout_seconds: Annotated[
        float, Field(gt=0, le=120, description="For each attempt, with all that it does.")
    ] = DEFAULT_TIMEOUT_SECONDS
    retries: Annotated[
        int,
        Field(ge=0, le=5, description="Further attempts while it is down, as far as they fit into the interval."),
    ] = 0
    retry_delay_seconds: Annotated[
        float, Field(ge=0, le=60, description="Before each further attempt, 10 % more or less.")
    ] = DEFAULT_RETRY_DELAY_SECONDS


def refuse_unfit_timeout(check: AnyCheck, timeout_seconds: float) -> None:
    """Raises ``ValueError`` for echoes of which the last ones would be sent too late to be answered."""
    if isinstance(check, PingCheck) and check.sending_seconds >= timeout_seconds:
        raise ValueError(
            f"timeout_seconds ({timeout_seconds:g}): {check.count} echoes take {check.sending_seconds:g} s to be "
            "sent: raise it, or lower count or interval_ms"
        )


class MonitorSpec(RunOptions):
    """The editable part of a monitor; read back it also has state and history."""

    name: Name
    interval_seconds: Annotated[
        int, Field(ge=MIN_INTERVAL_SECONDS, le=MAX_INTERVAL_SECONDS, description="From one check to the next.")
    ] = 60
    regions: Annotated[
        list[Region],
        Field(min_length=1, max_length=20, description="Each one checks; some worker has to serve it."),
    ] = ["default"]
    tags: Annotated[
        dict[str, Annotated[str, Field(max_length=200)]],
        Field(max_length=50, description="For lists, alert policies and maintenance windows."),
    ] = {}
    failure_threshold: Annotated[
        int, Field(ge=1, le=20, description="Failing results in a row that turn a region down.")
    ] = 1
    recovery_threshold: Annotated[
        int, Field(ge=1, le=20, description="Good results in a row that turn it up again.")
    ] = 1
    region_quorum: Annotated[
        int | None,
        Field(ge=1, le=20, description="Regions that must agree; null: more than half of those that see."),
    ] = None
    flap_window_seconds: Annotated[
        int,
        Field(ge=0, le=86_400, description="A failure this soon after a recovery re-opens the incident."),
    ] = DEFAULT_FLAP_WINDOW_SECONDS
    parents: Annotated[
        list[UUID],
        Field(max_length=MAX_PARENTS, description="Monitors whose failure explains that of this one."),
    ] = []
    check: Annotated[CheckSpec, Field(description="What is checked, and how.")]

    @field_validator("regions")
    @classmethod
    def _regions(cls, regions: list[str]) -> list[str]:
        for region in regions:
            if problem := region_problem(region):
                raise ValueError(problem)
        if len(set(regions)) != len(regions):
            raise ValueError("a region is named twice")
        return regions

    @model_validator(mode="before")
    @classmethod
    def _timeout_follows_interval(cls, data: object) -> object:
        # The default timeout must not make a short interval invalid that its user never combined with a timeout.
        if isinstance(data, dict) and "timeout_seconds" not in data:
            interval = data.get("interval_seconds")
            if isinstance(interval, int) and interval > 0:
                return {**data, "timeout_seconds": _default_timeout(interval, data)}
        return data

    @model_validator(mode="after")
    def _heartbeat_has_no_slots(self) -> Self:
        """Nothing is run for a heartbeat: it has the interval of its own period, and no place to be run from."""
        if isinstance(self.check, HeartbeatCheck):
            if len(self.regions) > 1:
                raise ValueError("regions: a heartbeat comes to us and is checked from nowhere: leave them out")
            object.__setattr__(self, "interval_seconds", self.check.interval_seconds)
            object.__setattr__(self, "timeout_seconds", min(self.timeout_seconds, self.check.interval_seconds))
        return self

    @field_validator("parents")
    @classmethod
    def _parents(cls, parents: list[UUID]) -> list[UUID]:
        if len(set(parents)) != len(parents):
            raise ValueError("a parent is named twice")
        return parents

    @model_validator(mode="after")
    def _quorum_is_possible(self) -> Self:
        if self.region_quorum is not None and self.region_quorum > len(self.regions):
            raise ValueError(f"region_quorum ({self.region_quorum}) is more than there are regions")
        return self

    @model_validator(mode="after")
    def _fits_the_interval(self) -> Self:
        if self.timeout_seconds > self.interval_seconds:
            raise ValueError(
                f"timeout_seconds ({self.timeout_seconds:g}) must not exceed interval_seconds "
                f"({self.interval_seconds}): a check has to end before its next one is due"
            )
        return self

    @model_validator(mode="after")
    def _check_fits_the_timeout(self) -> Self:
        refuse_unfit_timeout(self.check, self.timeout_seconds)
        return self

    @model_validator(mode="after")
    def _retries_fit_the_interval(self) -> Self:
        """A retry that might not end before the next slot is not begun: refuse those that never would be."""
        needed = self.retry_delay_seconds * (1 + RETRY_SPREAD) + self.timeout_seconds
        if self.retries and not isinstance(self.check, HeartbeatCheck) and needed >= self.interval_seconds:
            raise ValueError(
                f"retries: none would ever be run: retry_delay_seconds ({self.retry_delay_seconds:g}) "
                f"and timeout_seconds ({self.timeout_seconds:g}) do not fit into interval_seconds "
                f"({self.interval_seconds}): lower one of them"
            )
        return self


def _default_timeout(interval: int, data: dict[Any, Any]) -> float:
    """What the interval has room for: with retries, for two whole attempts and the wait between them."""
    delay = data.get("retry_delay_seconds", DEFAULT_RETRY_DELAY_SECONDS)
    whole = min(float(interval), DEFAULT_TIMEOUT_SECONDS)
    if not data.get("retries") or not isinstance(delay, int | float):
        return whole
    room = min((interval - delay * (1 + RETRY_SPREAD)) / 2, DEFAULT_TIMEOUT_SECONDS)
    return math.floor(room * 10) / 10 if room >= SHORTEST_DEFAULT_SECONDS else whole
