"""How long another side asks us to wait: the header ``Retry-After`` (RFC 9110 section 10.2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from shared.domain.clock import to_milliseconds

# The RFC knows whole seconds only; services send fractions all the same.
_SECONDS = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")


def retry_after(headers: Mapping[str, str], now_ms: int) -> float | None:
    """Seconds to wait, 0 or more, from the headers of an answer; None where they ask for nothing that can be read.

    A date that has passed asks for no wait. It is held against the answer's own ``Date``, if there is one, so that
    the other clock need not agree with ours.
    """
    fields = {name.lower(): value.strip() for name, value in headers.items()}
    value = fields.get("retry-after", "")
    if _SECONDS.fullmatch(value):
        return float(value)
    until_ms = _date_ms(value)
    if until_ms is None:
        return None
    sent_ms = _date_ms(fields.get("date", ""))
    return max(0, until_ms - (now_ms if sent_ms is None else sent_ms)) / 1000


def _date_ms(value: str) -> int | None:
    try:
        moment = parsedate_to_datetime(value)
        # The oldest of the three forms that a date may have names no zone, and means UTC.
        return to_milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
