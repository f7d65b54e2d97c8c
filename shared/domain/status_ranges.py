"""Status codes as people write them: ``200-299`` or ``200,204,301-302``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_PART = re.compile(r"([1-9][0-9]{2})(?:\s*-\s*([1-9][0-9]{2}))?")
_MEND = 'write status codes like "200-299" or "200,204,301-302"'


@dataclass(frozen=True, slots=True)
class StatusRanges:
    """A set of status codes with the text it was written in."""

    text: str
    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, code: object) -> bool:
        return isinstance(code, int) and any(low <= code <= high for low, high in self.ranges)


@lru_cache(maxsize=1024)
def parse_status_ranges(text: str) -> StatusRanges:
    """Raises ``ValueError`` that names the part it does not understand."""
    return StatusRanges(text, tuple(_range(part.strip()) for part in text.split(",")))


def _range(part: str) -> tuple[int, int]:
    found = _PART.fullmatch(part)
    if not found:
        raise ValueError(f"{part[:40]!r} is not a status code or range: {_MEND}")
    low, high = int(found[1]), int(found[2] or found[1])
    if low > high:
        raise ValueError(f"the range {part!r} ends before it starts")
    return low, high
