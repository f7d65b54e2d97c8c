"""Values of a specification are taken as they are written."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import Field, ValidationError

from shared.domain.spec import Strict


class _Inner(Strict):
    type: int = 0


class _Sample(Strict):
    whole: Annotated[int, Field(ge=1, le=9)] = 1
    number: float = 1.0
    truth: bool = True
    default: bool = True
    metadata: int = 1
    maybe: int | None = None
    wholes: list[int] | None = None
    truths: dict[str, bool] | None = None
    inner: _Inner = _Inner()
    anything: Any = None
    key: UUID | None = None
    keys: list[UUID] | None = None


ID = UUID("019a7f3e-5b1c-7c2d-8e4f-0a1b2c3d4e5f")
TAKEN: list[tuple[str, Any, Any]] = [
    ("whole", 5, 5),
    ("whole", 5.0, 5),
    ("number", 2, 2.0),
    ("number", 2.5, 2.5),
    ("truth", False, False),
    ("maybe", None, None),
    ("wholes", [1, 2.0], [1, 2]),
    ("anything", "5", "5"),
    ("anything", ID.urn, ID.urn),
    ("key", str(ID), ID),
    ("key", str(ID).upper(), ID),
    ("key", ID, ID),
    ("keys", [str(ID)], [ID]),
]
REFUSED: list[tuple[str, Any]] = [
    *((name, value) for name in ("whole", "metadata", "maybe") for value in ("5", True, 5.5, "")),
    *(("number", value) for value in ("2.5", True, "")),
    *((name, value) for name in ("truth", "default") for value in ("no", "true", 0, 1, 1.0)),
    ("whole", 0),
    ("whole", 10.0),
    ("wholes", ["1"]),
    ("truths", {"a": "yes"}),
    ("inner", {"type": "1"}),
    *(("key", value) for value in (ID.urn, f"{{{ID}}}", ID.hex, f" {ID}", f"{ID}\n", 5)),
    ("keys", [ID.hex]),
]


@pytest.mark.parametrize(("field", "written", "taken"), TAKEN, ids=repr)
def test_what_json_says_is_taken(field: str, written: Any, taken: Any) -> None:
    found = getattr(_Sample.model_validate({field: written}), field)
    assert (found, type(found)) == (taken, type(taken))


@pytest.mark.parametrize(("field", "written"), REFUSED, ids=repr)
def test_what_only_looks_like_it_is_refused(field: str, written: Any) -> None:
    with pytest.raises(ValidationError):
        _Sample.model_validate({field: written})
