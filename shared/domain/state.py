"""From results to a monitor's state: pure, applied by the recorder under a lock on the monitor's row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from shared.domain.result import ResultStatus


class MonitorStatus(StrEnum):
    PENDING = "pending"
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"
    UNKNOWN = "unknown"
    PAUSED = "paused"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How many judged results in a row turn a monitor down, and up again."""

    failure: int = 1
    recovery: int = 1


@dataclass(frozen=True, slots=True)
class MonitorState:
    """What is remembered between results. Times are milliseconds since 1970; ``last_slot_ms`` orders results."""

    status: MonitorStatus = MonitorStatus.PENDING
    status_since_ms: int = 0
    last_slot_ms: int = -1
    consecutive_failures: int = 0
    consecutive_successes: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """The part of a result that can change a state."""

    slot_ms: int
    status: ResultStatus


def apply(state: MonitorState, judged: Judged, thresholds: Thresholds) -> MonitorState:
    """The state after one more result.

    A slot that is not newer than the last applied one changes nothing: results may arrive late and out of order.
    A missed slot is no evidence about the target, so it turns a monitor neither up nor down.
    """
    if judged.slot_ms <= state.last_slot_ms or judged.status is ResultStatus.MISSED:
        return state
    counted = _count(state, judged)
    status = _status(counted, judged.status, thresholds)
    if status is counted.status:
        return counted
    return replace(counted, status=status, status_since_ms=judged.slot_ms)


def _count(state: MonitorState, judged: Judged) -> MonitorState:
    failed = judged.status is ResultStatus.DOWN
    return replace(
        state,
        last_slot_ms=judged.slot_ms,
        consecutive_failures=state.consecutive_failures + 1 if failed else 0,
        consecutive_successes=0 if failed else state.consecutive_successes + 1,
    )


def _status(state: MonitorState, judged: ResultStatus, thresholds: Thresholds) -> MonitorStatus:
    if judged is ResultStatus.DOWN:
        return MonitorStatus.DOWN if state.consecutive_failures >= thresholds.failure else state.status
    if state.status is MonitorStatus.DOWN and state.consecutive_successes < thresholds.recovery:
        return MonitorStatus.DOWN
    return MonitorStatus(judged.value)
