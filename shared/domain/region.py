"""Regions: where checks run."""

from __future__ import annotations

import re
from typing import Final

PLATFORM_REGION: Final = "platform"
"""Tocsin's own jobs travel in it; nobody's monitors do."""

_REGION = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?")


def region_problem(region: str) -> str | None:
    """Why a region cannot be a NATS subject token and a label, or None."""
    if region == PLATFORM_REGION:
        return f"the region {PLATFORM_REGION!r} is reserved for Tocsin's own jobs: choose another name"
    if _REGION.fullmatch(region):
        return None
    return "a region is 1 to 32 lower-case letters, digits, '-' or '_', and starts and ends with a letter or digit"
