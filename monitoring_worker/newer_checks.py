"""Checks that a newer release has stored, as happens while releases are replaced one process after the other.

What this release does not know of them is no evidence about their targets.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from pydantic import ValidationError

from shared.contracts.sealing import StoredCheck

_UNKNOWN: Final = frozenset({"extra_forbidden", "union_tag_invalid"})


def is_newer(error: ValidationError) -> bool:
    """Whether nothing is wrong with a stored check but that it has fields or kinds that nobody knows here."""
    return all(each["type"] in _UNKNOWN for each in error.errors(include_url=False, include_context=False))


def without_unused(stored: StoredCheck, error: ValidationError) -> StoredCheck | None:
    """The check without unknown fields that hold nothing, which are options that are off; None if more is wrong."""
    trimmed = deepcopy(stored)
    for each in error.errors(include_url=False, include_context=False):
        if each["type"] != "extra_forbidden" or each["input"]:
            return None
        _remove(trimmed, each["loc"])
    return trimmed


def _remove(place: Any, path: tuple[int | str, ...]) -> None:
    *parents, name = path
    for part in parents:
        # Between the fields of a path stand the kinds by which a model was chosen.
        if isinstance(part, int) or part in place:
            place = place[part]
    place.pop(name, None)
