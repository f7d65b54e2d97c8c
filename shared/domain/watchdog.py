"""Is the work being done? Verdicts on the whole installation from what can be seen from outside of its parts.

Pure. Looked at from another process than the ones that are watched: a part that died can't report its own death.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STALLED_DISPATCH_MS = 5_000
LATE_BEAT_MS = 15_000
OLD_RESULTS_MS = 30_000
OLD_TASKS_MS = 60_000
DEAF_AFTER_MS = 10_000


@dataclass(frozen=True, slots=True)
class Depth:
    """A stream: how many messages wait, and since when the oldest does (null when none waits)."""

    messages: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """A region's consumer: checks nobody asked for yet, how many were handed out, and how many of those in vain."""

    pending: int = 0
    delivered: int = 0
    redelivered: int = 0

    def is_stuck_since(self, before: Reader) -> bool:
        """Whether nothing moved: checks wait and none was handed out, or none that came back was settled.

        A worker that is frozen still has requests open, which swallow checks: only their coming back shows it.
        """
        untaken = self.pending > 0 and self.delivered == before.delivered
        unsettled = self.redelivered >= before.redelivered > 0
        return untaken or unsettled


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look showed. ``readers`` is by region, null where no worker ever was."""

    now_ms: int
    planned_until_ms: int | None = None
    beat_ms: int | None = None
    streams: Mapping[str, Depth] = field(default_factory=dict)
    readers: Mapping[str, Reader | None] = field(default_factory=dict)
    active_monitors: int = 0
    blind_monitors: int = 0


@dataclass(slots=True)
class Memory:
    """When the beat is due, and since when each region's workers have taken nothing although checks wait."""

    beat_due_ms: int | None = None
    deaf_since: dict[str, int] = field(default_factory=dict)
    last: Mapping[str, Reader | None] = field(default_factory=dict)


def judge(sight: Sight, memory: Memory) -> dict[str, str | None]:
    """By part of the work, a sentence that says what is not being done, or None."""
    return {
        "dispatch": _dispatch(sight),
        "beat": _beat(sight, memory),
        "results": _results(sight),
        "tasks": _tasks(sight),
        "workers": _workers(sight, memory),
        "monitors": _monitors(sight),
    }


def _dispatch(sight: Sight) -> str | None:
    if sight.planned_until_ms is None:
        return "no scheduler has ever reported" if sight.active_monitors else None
    age = sight.now_ms - sight.planned_until_ms
    if age < -STALLED_DISPATCH_MS:  # such a report would look fresh for as long, whether anybody dispatches or not
        return f"a scheduler reports a time that is {-age / 1000:.0f} s ahead: one of the clocks is wrong"
    return f"no scheduler has dispatched for {age / 1000:.0f} s" if age > STALLED_DISPATCH_MS else None


def _beat(sight: Sight, memory: Memory) -> str | None:
    if memory.beat_due_ms is None:  # a new installation has none yet
        memory.beat_due_ms = sight.now_ms + LATE_BEAT_MS
    if sight.beat_ms is None:
        return "the queue's own beat is not there" if sight.now_ms > memory.beat_due_ms else None
    memory.beat_due_ms = sight.now_ms
    age = sight.now_ms - sight.beat_ms
    return f"the queue's own beat is {age / 1000:.0f} s old" if age > LATE_BEAT_MS else None


def _results(sight: Sight) -> str | None:
    return _old(sight, "RESULTS", OLD_RESULTS_MS, "batches of results are not stored")


def _tasks(sight: Sight) -> str | None:
    return _old(sight, "TASKS", OLD_TASKS_MS, "tasks, such as notifications, are not taken by any worker")


def _old(sight: Sight, stream: str, limit_ms: int, trouble: str) -> str | None:
    depth = sight.streams.get(stream, Depth())
    if depth.oldest_ms is None or sight.now_ms - depth.oldest_ms <= limit_ms:
        return None
    return f"{depth.messages} {trouble}, the oldest for {(sight.now_ms - depth.oldest_ms) / 1000:.0f} s"


def _workers(sight: Sight, memory: Memory) -> str | None:
    missing, deaf = [], []
    for region, reader in sorted(sight.readers.items()):
        if reader is None:
            missing.append(region)
        elif _is_deaf(region, reader, sight.now_ms, memory):
            deaf.append(region)
    memory.last = sight.readers
    problems = [
        f"no worker has ever served {', '.join(missing)}" if missing else "",
        f"checks wait and no worker takes them in {', '.join(deaf)}" if deaf else "",
    ]
    return "; ".join(filter(None, problems)) or None


def _is_deaf(region: str, reader: Reader, now_ms: int, memory: Memory) -> bool:
    before = memory.last.get(region)
    if before is None or not reader.is_stuck_since(before):
        memory.deaf_since.pop(region, None)
        return False
    return now_ms - memory.deaf_since.setdefault(region, now_ms) > DEAF_AFTER_MS


def _monitors(sight: Sight) -> str | None:
    if not sight.blind_monitors:
        return None
    return f"{sight.blind_monitors} of {sight.active_monitors} monitors have had no verdict for three intervals"
