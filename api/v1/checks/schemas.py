"""A check that is run without being stored."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from shared.domain.checks import AnyCheck, CheckSpec, HeartbeatCheck
from shared.domain.monitor import Region, RunOptions, refuse_unfit_timeout
from shared.domain.region import region_problem

PREVIEW_EXAMPLE: dict[str, Any] = {"check": {"kind": "http", "url": "https://shop.example/health"}}
STEPS_EXAMPLE: dict[str, Any] = {
    "kind": "http_steps",
    "variables": {"base": "https://shop.example/api"},
    "secrets": {"password": "correct horse"},
    "steps": [
        {
            "name": "log in",
            "method": "POST",
            "url": "{{base}}/sessions",
            "body": {"kind": "json", "value": {"user": "probe", "password": "{{password}}"}},
            "extract": [{"name": "token", "source": "json", "path": "$.token"}],
        },
        {
            "name": "order",
            "method": "POST",
            "url": "{{base}}/orders",
            "auth": {"kind": "bearer", "token": "{{token}}"},
            "body": {"kind": "json", "value": {"article": "probe"}},
            "assertions": [{"source": "status", "operator": "eq", "value": 201}],
            "extract": [{"name": "order", "source": "json", "path": "$.id"}],
        },
    ],
    "cleanup": {
        "name": "delete the order",
        "method": "DELETE",
        "url": "{{base}}/orders/{{order}}",
        "auth": {"kind": "bearer", "token": "{{token}}"},
    },
}


class Preview(RunOptions):
    """What to check, and from where."""

    check: CheckSpec
    region: Annotated[Region, Field(description="A worker of this region runs it.")] = "default"

    @field_validator("check")
    @classmethod
    def _runnable(cls, check: AnyCheck) -> AnyCheck:
        if isinstance(check, HeartbeatCheck):
            raise ValueError("a heartbeat is not checked: it reports by itself")  # noqa: TRY004 pydantic's
        return check

    @model_validator(mode="after")
    def _fits(self) -> Self:
        refuse_unfit_timeout(self.check, self.timeout_seconds)
        return self

    @field_validator("region")
    @classmethod
    def _token(cls, region: str) -> str:
        if problem := region_problem(region):
            raise ValueError(problem)
        return region
