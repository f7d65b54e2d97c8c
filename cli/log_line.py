"""A line of a child's log as a person reads it."""

from __future__ import annotations

import json

_LIMIT = 300


def readable(line: str) -> str:
    """The event and its cause where the line is one of our JSON logs, else the line itself; bounded."""
    try:
        entry = json.loads(line)
        text = str(entry["event"])
        cause = entry.get("reason") or str(entry.get("exception", "")).rpartition("\n")[2]
    except (ValueError, TypeError, KeyError):
        return line[:_LIMIT]
    return (f"{text}: {cause}" if cause else text)[:_LIMIT]
