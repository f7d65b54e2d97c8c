"""From results to a monitor's state: pure, applied by the recorder under a lock on the monitor's row.

Each region counts its own verdicts against the thresholds; the status is what a quorum of the regions says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shared.domain.result import ResultStatus

FRESH_INTERVALS = 3
"""A region whose last verdict is older than this many intervals has no say; without any, nothing is known."""


class MonitorStatus(StrEnum):
    PENDING = "pending"
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"
    UNKNOWN = "unknown"
    PAUSED = "paused"
    MAINTENANCE = "maintenance"


WELL = frozenset({MonitorStatus.UP, MonitorStatus.DEGRADED})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How many judged results in a row turn a region down, and up again."""

    failure: int = 1
    recovery: int = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """How a monitor wants to be judged. Without a quorum, more than half of the regions decide."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    regions: tuple[str, ...] = ("default",)
    quorum: int | None = None
    interval_ms: int = 60_000

    @property
    def fresh_ms(self) -> int:
        return FRESH_INTERVALS * self.interval_ms


@dataclass(frozen=True, slots=True)
class RegionState:
    """What is remembered of one region. ``since_ms`` is the first slot of the present run of equal verdicts."""

    slot_ms: int = -1
    status: MonitorStatus = MonitorStatus.PENDING
    verdict: ResultStatus | None = None
    since_ms: int = -1
    failures: int = 0
    successes: int = 0


_UNHEARD = RegionState()


@dataclass(frozen=True, slots=True)
class MonitorState:
    """What is remembered between results. Times are milliseconds since 1970.

    ``status`` is the truth, also inside a pause or a maintenance window: those lie over it as ``overlay``.
    ``announced`` is what the incidents said last: up, degraded or down.
    """

    status: MonitorStatus = MonitorStatus.PENDING
    status_since_ms: int = 0
    regions: Mapping[str, RegionState] = field(default_factory=dict)
    announced: MonitorStatus = MonitorStatus.UP
    overlay: MonitorStatus | None = None
    overlay_since_ms: int | None = None

    @property
    def shown(self) -> MonitorStatus:
        return self.overlay or self.status

    @property
    def last_slot_ms(self) -> int:
        """The newest slot that was judged anywhere; -1 before the first."""
        return max((region.slot_ms for region in self.regions.values()), default=-1)

    @property
    def consecutive_failures(self) -> int:
        """The longest run of failures that a region is in."""
        return max((region.failures for region in self.regions.values()), default=0)

    @property
    def consecutive_successes(self) -> int:
        """The shortest run of successes: 0 while any region fails."""
        return min((region.successes for region in self.regions.values()), default=0)


@dataclass(frozen=True, slots=True)
class Judged:
    """The part of a result that can change a state."""

    slot_ms: int
    status: ResultStatus
    region: str = "default"


def apply(state: MonitorState, judged: Judged, rules: Rules) -> MonitorState:
    """The state after one more result.

    A slot that is not newer than the last applied one of its region changes nothing: results may arrive late and
    out of order. A missed slot is no evidence about the target, so it turns a monitor neither up nor down.
    """
    before = state.regions.get(judged.region, _UNHEARD)
    if judged.region not in rules.regions or judged.slot_ms <= before.slot_ms:
        return state
    if judged.status is ResultStatus.MISSED:
        return state
    region = _judge(before, judged, rules.thresholds)
    # The first verdict after a silence waits for the other regions; one slot later it stands alone if it must.
    last_slot_ms = state.last_slot_ms
    is_return = last_slot_ms < 0 or judged.slot_ms - last_slot_ms > rules.fresh_ms
    regions = {name: known for name, known in state.regions.items() if name in rules.regions}
    regions[judged.region] = region
    status = _quorum(regions, max(judged.slot_ms, last_slot_ms), rules, is_return=is_return)
    if status is None or status is state.status or not _may_turn(state.status, region):
        return _moved(state, regions, state.status, state.status_since_ms)
    return _moved(state, regions, status, max(region.since_ms, state.status_since_ms))


def _moved(
    state: MonitorState, regions: Mapping[str, RegionState], status: MonitorStatus, since_ms: int
) -> MonitorState:
    # Said in full: dataclasses.replace costs more than all the judging, and this is done for every result.
    return MonitorState(status, since_ms, regions, state.announced, state.overlay, state.overlay_since_ms)


def forget_counts(state: MonitorState) -> MonitorState:
    """The state for a check that changed: what the old one counted says nothing about the new one's thresholds."""
    regions = {
        name: replace(region, failures=0, successes=0, verdict=None, since_ms=-1)
        for name, region in state.regions.items()
    }
    return replace(state, regions=regions)


def _judge(before: RegionState, judged: Judged, thresholds: Thresholds) -> RegionState:
    slot_ms, verdict = judged.slot_ms, judged.status
    since_ms = before.since_ms if verdict is before.verdict else slot_ms
    if verdict is ResultStatus.DOWN:
        failures = before.failures + 1
        status = MonitorStatus.DOWN if failures >= thresholds.failure else before.status
        return RegionState(slot_ms, status, verdict, since_ms, failures, 0)
    successes = before.successes + 1
    is_still_down = before.status is MonitorStatus.DOWN and successes < thresholds.recovery
    status = MonitorStatus.DOWN if is_still_down else MonitorStatus(verdict.value)
    return RegionState(slot_ms, status, verdict, since_ms, 0, successes)


def _quorum(
    regions: Mapping[str, RegionState], newest_ms: int, rules: Rules, *, is_return: bool
) -> MonitorStatus | None:
    """What enough regions say; None while not enough of them have spoken."""
    fresh = [
        region.status
        for region in regions.values()
        if region.status is not MonitorStatus.PENDING and newest_ms - region.slot_ms <= rules.fresh_ms
    ]
    voters = len(rules.regions) if is_return else len(fresh)
    needed = min(rules.quorum or voters // 2 + 1, voters)
    down, unwell = fresh.count(MonitorStatus.DOWN), len(fresh) - fresh.count(MonitorStatus.UP)
    if fresh and down >= needed:
        return MonitorStatus.DOWN
    if fresh and unwell >= needed:
        return MonitorStatus.DEGRADED
    return MonitorStatus.UP if len(fresh) - unwell > voters - needed else None


def _may_turn(status: MonitorStatus, region: RegionState) -> bool:
    """After a time of not knowing, only a verdict that agrees with its region's status says where things stand."""
    if status is not MonitorStatus.UNKNOWN:
        return True
    return (region.verdict is ResultStatus.DOWN) == (region.status is MonitorStatus.DOWN)
