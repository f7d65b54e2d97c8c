"""Blame the probe first: whether many monitors that fail at once say more about a worker than about their targets.

Pure. The evidence are beats: how many monitors a worker saw turn from well to failing, how many it found well, and
how many it found failing as before, by the moment at which it began to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

CAUSE = "mass_failure"
"""What the platform's incident names as its cause."""
BEAT_MS = 200
WINDOW_MS = 60_000
"""Older beats say nothing about a failure that is judged now."""
HOLD_MS = 1_000
"""How long an alert waits for its worker to show that it sees the world."""
LONGEST_HOLD_MS = 5_000
"""How long it waits when several monitors failed and not one was found well since."""
LEAST = 10
_FEW = 3


class Ruling(StrEnum):
    """What becomes of an alert that is held back."""

    RELEASE = "release"
    HOLD = "hold"
    MASS = "mass"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A worker of a region, or with an empty worker the region itself."""

    worker: str
    region: str


@dataclass(frozen=True, slots=True)
class Beat:
    """What one worker saw among the checks that it began within ``BEAT_MS`` from ``at_ms`` on."""

    at_ms: int
    turned: int
    well: int
    failing: int = 0


def beat_of(started_at_ms: int) -> int:
    """The beat in which a check began."""
    return started_at_ms - started_at_ms % BEAT_MS


def sees_the_world(turned: int, well: int) -> bool:
    """Whether a worker found more targets well than failing among the checks it began since a failure."""
    return well > turned


def judge(beats: Sequence[Beat], started_at_ms: int, held_ms: int) -> Ruling:
    """Judge a failure whose check began at ``started_at_ms`` and whose alert waits since ``held_ms``.

    ``beats`` are those of its worker, in order of time.
    """
    failing = beat_of(started_at_ms)
    run = run_of_failures(beats, started_at_ms)
    # What was well within the very beat of the failure may have been looked at just before it.
    if sees_the_world(_turned(run), _well([beat for beat in run if beat.at_ms > failing])):
        return Ruling.RELEASE
    if held_ms < HOLD_MS:
        return Ruling.HOLD
    if is_mass(_turned(run), _well(run)):
        return Ruling.MASS
    is_dark = _turned(run) >= _FEW and not _well(run)
    return Ruling.HOLD if is_dark and held_ms < LONGEST_HOLD_MS else Ruling.RELEASE


def is_mass(turned: int, well: int) -> bool:
    """At least half of what was looked at turned, and enough of it that chance and one bad host are ruled out.

    Chance: that a third of all targets really failed, and more of those were looked at first (four sigma).
    """
    looks = turned + well
    return turned >= LEAST and turned >= well and (3 * turned - looks) ** 2 >= 32 * looks


def run_of_failures(beats: Sequence[Beat], started_at_ms: int) -> list[Beat]:
    """What a worker saw since it last saw the world before this failure."""
    failing = beat_of(started_at_ms)
    healthy = [beat.at_ms for beat in beats if beat.at_ms < failing and sees_the_world(beat.turned, beat.well)]
    since = max(healthy, default=-1)
    return [beat for beat in beats if beat.at_ms > since]


def suspect(worker: str, region: str, workers: Mapping[str, Sequence[Beat]], started_at_ms: int) -> Suspect:
    """Who is to blame for a mass failure: the worker, or its region when all of the region's workers fail alike."""
    runs = [run_of_failures(beats, started_at_ms) for beats in workers.values()]
    active = [counts for run in runs if any(counts := (_turned(run), _well(run)))]
    is_region = len(active) > 1 and all(turned >= max(_FEW, well) for turned, well in active)
    return Suspect("" if is_region else worker, region)


def has_passed(beats: Iterable[Beat], affected: int, still_failing: int) -> bool:
    """Whether the suspect sees again: half of what it failed recovered, or most of what it looks at is well.

    Most: by more than half of the looks would show by chance (three sigma). ``beats`` are without any from before
    its incident. What was seen before the last monitor turned is not counted: others were yet to be looked at.
    """
    well = failing = 0
    for beat in sorted(beats, key=lambda beat: beat.at_ms):
        well, failing = (0, 0) if beat.turned else (well + beat.well, failing + beat.failing)
    sees_most = well > failing and (well - failing) ** 2 >= 9 * (well + failing)
    return still_failing * 2 <= affected or (well >= LEAST and sees_most)


def _turned(beats: Iterable[Beat]) -> int:
    return sum(beat.turned for beat in beats)


def _well(beats: Iterable[Beat]) -> int:
    return sum(beat.well for beat in beats)
