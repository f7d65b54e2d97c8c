"""A check that is run without being stored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from shared.domain.checks import CheckSpec
from shared.domain.monitor import Region, RunOptions, region_problem

PREVIEW_EXAMPLE: dict[str, Any] = {"check": {"kind": "http", "url": "https://shop.example/health"}}


class Preview(RunOptions):
    """What to check, and from where."""

    check: CheckSpec
    region: Annotated[Region, Field(description="A worker of this region runs it.")] = "default"

    @field_validator("region")
    @classmethod
    def _token(cls, region: str) -> str:
        if problem := region_problem(region):
            raise ValueError(problem)
        return region
