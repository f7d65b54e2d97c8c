"""What the specifications of all kinds of checks are built from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from shared.domain.literal_schema import take_literally
from shared.domain.result import ChangeKind


class Secret:
    """Marks a field whose value is stored sealed and read back masked: ``Annotated[str, Secret()]``."""

    __slots__ = ()


class Strict(BaseModel):
    """Unknown fields are refused, and values are not guessed: a typo must not switch a condition off silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        take_literally(handler.resolve_ref_schema(schema))
        return schema


def _visible(name: str) -> str:
    if not name.strip() or any(ord(character) < 32 for character in name):
        raise ValueError("a name needs a visible character and no control characters")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_visible)]
"""What people call a thing of theirs."""

MinVersion = Literal["1.0", "1.1", "1.2", "1.3"]


ExpiryWarningDays = Annotated[
    list[Annotated[int, Field(ge=0, le=3650)]],
    Field(max_length=10, description="`degraded` from so many days before the end on; told anew at each number."),
]


ReportedChanges = Annotated[
    list[ChangeKind],
    Field(
        max_length=len(ChangeKind),
        description="`degraded` from a change of `issuer`, `key` or `names` on until somebody accepts it.",
    ),
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
    report_changes: ReportedChanges = []

    @model_validator(mode="before")
    @classmethod
    def _percent_replaces_the_default_days(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("expiry_warning_percent") is not None:
            return {"expiry_warning_days": [], **data}
        return data
