"""What the specifications of all kinds of checks are built from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Secret:
    """Marks a field whose value is stored sealed and read back masked: ``Annotated[str, Secret()]``."""

    __slots__ = ()


class Strict(BaseModel):
    """Unknown fields are refused: a typo must not switch a condition off silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


MinVersion = Literal["1.0", "1.1", "1.2", "1.3"]


ExpiryWarningDays = Annotated[
    list[Annotated[int, Field(ge=0, le=3650)]],
    Field(max_length=10, description="`degraded` from so many days before the end on; told anew at each number."),
]


class TlsOptions(Strict):
    """How a handshake is judged.

    A warning is due at each number of days left, or once no more than ``expiry_warning_percent`` of the
    certificate's lifetime is left: for certificates that live for days instead of months. Who gives only the
    percentage means only that one.
    """

    verify: bool = True
    expiry_warning_days: ExpiryWarningDays = [30, 14, 7]
    expiry_warning_percent: Annotated[float | None, Field(gt=0, lt=100)] = None
    min_version: MinVersion = "1.2"

    @model_validator(mode="before")
    @classmethod
    def _percent_replaces_the_default_days(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("expiry_warning_percent") is not None:
            return {"expiry_warning_days": [], **data}
        return data
