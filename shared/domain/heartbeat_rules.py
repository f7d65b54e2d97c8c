"""From stored pings to verdicts: pure, and the same whenever and however often it is evaluated.

Pings may be stored late, twice or out of order. What decides is when they were received, and for how much of the
time in which a ping was due we were able to receive it: where we were not, its absence proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from shared.domain.clock import to_datetime
from shared.domain.errors import CheckError, ErrorKind, MissedReason
from shared.domain.heartbeat import MAX_BODY, HeartbeatCheck, Ping, Signal
from shared.domain.recurrence import Span
from shared.domain.result import CheckVerdict, Evidence, ResultStatus, Timings, missed

MAX_RUNS: Final = 100
MAX_CLOSED: Final = 20
SETTLE_MS: Final = 10_000
"""So long after its last sign a receiver may be alive without our knowing."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that said when it started; ``overdue`` once that it did not end in time has been told."""

    run_id: str | None
    started_ms: int
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """What is remembered between evaluations. Times are milliseconds since 1970, -1 for never.

    ``expected_ms`` is when the next ping is expected; ``closed`` says when recent runs ended. ``log`` is what was
    logged since the last verdict. ``blind`` says that pings may have been lost since then.
    """

    expected_ms: int | None
    last_success_ms: int = -1
    last_failure_ms: int = -1
    last_slot_ms: int = -1
    runs: tuple[Run, ...] = ()
    closed: tuple[tuple[str | None, int], ...] = ()
    log: str = ""
    blind: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its place in time; ``started_ms`` is null where nothing was received."""

    slot_ms: int
    started_ms: int | None
    verdict: CheckVerdict


@dataclass(frozen=True, slots=True)
class Reception:
    """The spans in which pings could be received, in order and without touching each other."""

    spans: tuple[Span, ...]

    @property
    def until_ms(self) -> int:
        return self.spans[-1][1] if self.spans else -1

    def proven_until(self, moment_ms: int) -> Reception:
        """As this, extended to a moment at which something was received, unless that is far from it."""
        if not 0 < moment_ms - self.until_ms <= SETTLE_MS:
            return self
        return Reception((*self.spans[:-1], (self.spans[-1][0], moment_ms)))

    def gap(self, since_ms: int, until_ms: int) -> Span | None:
        """The first part of ``[since, until)`` in which nothing could be received."""
        reached = since_ms
        for start, end in self.spans:
            if start > reached:
                break
            reached = max(reached, end)
        if reached >= until_ms:
            return None
        later = (start for start, _ in self.spans if start > reached)
        return reached, min(next(later, until_ms), until_ms)


def first_state(spec: HeartbeatCheck, now_ms: int) -> HeartbeatState:
    """A heartbeat that begins now: its first ping is expected as if one had just come."""
    return HeartbeatState(spec.following(now_ms))


def next_deadline_ms(spec: HeartbeatCheck, state: HeartbeatState) -> int | None:
    """When the state has to be judged again if nothing is received until then."""
    return min((deadline for deadline, _ in _deadlines(spec, state)), default=None)


def evaluate(
    spec: HeartbeatCheck, state: HeartbeatState, pings: Iterable[Ping], now_ms: int, reception: Reception
) -> tuple[HeartbeatState, list[Judgement]]:
    """The state after these pings and after the deadlines that have passed, with the verdicts on the way."""
    found: list[Judgement] = []
    for ping in sorted(pings, key=lambda ping: ping.received_ms):
        proven = reception.proven_until(ping.received_ms)
        state = _judge(spec, state, ping.received_ms, proven, found)
        state = _receive(spec, state, ping, found)
    is_receiving = now_ms - reception.until_ms <= SETTLE_MS
    state = _judge(spec, state, min(now_ms, reception.until_ms) if is_receiving else now_ms, reception, found)
    return state, found


def _deadlines(spec: HeartbeatCheck, state: HeartbeatState) -> Iterable[tuple[int, Run | None]]:
    grace = spec.grace_seconds * 1000
    if state.expected_ms is not None:
        yield state.expected_ms + grace, None
    yield from ((run.started_ms + grace, run) for run in state.runs if not run.overdue)


def _judge(
    spec: HeartbeatCheck, state: HeartbeatState, until_ms: int, reception: Reception, found: list[Judgement]
) -> HeartbeatState:
    """Judge every deadline up to a moment; of a ping that is missing again and again one verdict is made."""
    passed = sorted((pair for pair in _deadlines(spec, state) if pair[0] <= until_ms), key=lambda pair: pair[0])
    for deadline, run in passed:
        due_since = run.started_ms if run else deadline - spec.grace_seconds * 1000
        gap = reception.gap(due_since, deadline)
        if gap is None:
            verdict = _late_run(run, deadline) if run else _no_ping(state, deadline)
            state = _conclude(replace(state, blind=False), Judgement(deadline, None, verdict), found)
        elif not state.blind:
            verdict = missed(MissedReason.WORKER_GAP, _unreceived(gap))
            state = _conclude(replace(state, blind=True), Judgement(deadline, None, verdict), found)
        state = _told(state, run) if run else _expect_next(spec, state, until_ms)
    return state


def _expect_next(spec: HeartbeatCheck, state: HeartbeatState, until_ms: int) -> HeartbeatState:
    assert state.expected_ms is not None
    over = until_ms - spec.grace_seconds * 1000
    if spec.cron is None and over > state.expected_ms:
        # In the rhythm of the job: its pings come at these times, also after one that we did not receive.
        period = (spec.period_seconds or 1) * 1000
        over = state.expected_ms + (over - state.expected_ms) // period * period
    return replace(state, expected_ms=spec.following(max(state.expected_ms, over)))


def _told(state: HeartbeatState, told: Run) -> HeartbeatState:
    return replace(state, runs=tuple(replace(run, overdue=True) if run == told else run for run in state.runs))


def _receive(spec: HeartbeatCheck, state: HeartbeatState, ping: Ping, found: list[Judgement]) -> HeartbeatState:
    match ping.signal:
        case Signal.START:
            return _start(state, ping)
        case Signal.LOG:
            return replace(state, log=_joined(state.log, ping.body))
    run = next((run for run in state.runs if run.run_id == ping.run_id), None)
    if run is not None and run.started_ms > ping.received_ms:
        run = None
    state = _close(state, run, ping)
    judgement = Judgement(ping.received_ms, run.started_ms if run else ping.received_ms, _verdict(state, run, ping))
    if ping.received_ms <= max(state.last_success_ms, state.last_failure_ms):
        found.append(judgement)  # an old one: it has its place in the history, and decides nothing
        return state
    state = replace(state, expected_ms=spec.expected_after(ping.received_ms), log="", blind=False)
    if ping.signal is Signal.FAIL:
        state = replace(state, last_failure_ms=ping.received_ms)
    else:
        state = replace(state, last_success_ms=ping.received_ms)
    return _conclude(state, judgement, found)


def _start(state: HeartbeatState, ping: Ping) -> HeartbeatState:
    ended = (moment for run_id, moment in state.closed if run_id == ping.run_id)
    if ping.received_ms <= max(ended, default=-1):
        return state
    same = next((run for run in state.runs if run.run_id == ping.run_id), None)
    if same is not None and same.started_ms >= ping.received_ms:
        return state
    others = tuple(run for run in state.runs if run is not same)
    # Of too many the oldest are kept: they are the next to be overdue.
    return replace(state, runs=(*others, Run(ping.run_id, ping.received_ms))[:MAX_RUNS])


def _close(state: HeartbeatState, run: Run | None, ping: Ping) -> HeartbeatState:
    others = tuple(pair for pair in state.closed if pair[0] != ping.run_id)
    known = max((moment for run_id, moment in state.closed if run_id == ping.run_id), default=-1)
    closed = (*others, (ping.run_id, max(known, ping.received_ms)))[-MAX_CLOSED:]
    return replace(state, closed=closed, runs=tuple(other for other in state.runs if other is not run))


def _conclude(state: HeartbeatState, judgement: Judgement, found: list[Judgement]) -> HeartbeatState:
    """Add a verdict behind all others, because what came later decides."""
    slot = max(judgement.slot_ms, state.last_slot_ms + 1)
    found.append(replace(judgement, slot_ms=slot))
    return replace(state, last_slot_ms=slot)


def _verdict(state: HeartbeatState, run: Run | None, ping: Ping) -> CheckVerdict:
    total = float(ping.received_ms - run.started_ms) if run else 0.0
    text = _joined(state.log, ping.body)
    evidence = Evidence(body=text) if text else None
    if ping.signal is Signal.SUCCESS:
        return CheckVerdict(ResultStatus.UP, timings_ms=Timings(total=total), evidence=evidence)
    named = f"run {ping.run_id}" if ping.run_id else "the job"
    ending = "failure" if ping.exit_code is None else f"exit code {ping.exit_code}"
    error = CheckError(ErrorKind.ASSERTION_FAILED, f"{named} reported {ending}")
    return CheckVerdict(ResultStatus.DOWN, error=error, timings_ms=Timings(total=total), evidence=evidence)


def _no_ping(state: HeartbeatState, deadline: int) -> CheckVerdict:
    last = max(state.last_success_ms, state.last_failure_ms)
    since = "no ping yet" if last < 0 else f"no ping since {_shown(last)}"
    return _down(f"{since}, expected by {_shown(deadline)}")


def _late_run(run: Run, deadline: int) -> CheckVerdict:
    named = f"run {run.run_id}" if run.run_id else "the run"
    return _down(f"{named} that started at {_shown(run.started_ms)} did not end by {_shown(deadline)}")


def _down(message: str) -> CheckVerdict:
    return CheckVerdict(ResultStatus.DOWN, error=CheckError(ErrorKind.TIMEOUT, message))


def _unreceived(gap: Span) -> str:
    return (
        f"pings could not be received from {_shown(gap[0])} to {_shown(gap[1])}, "
        "so that one is missing proves nothing"
    )


def _shown(moment_ms: int) -> str:
    return f"{to_datetime(moment_ms):%Y-%m-%d %H:%M:%S} UTC"


def _joined(log: str, text: str | None) -> str:
    """The end counts: it is where a job says why it failed."""
    return "\n".join(part for part in (log, text) if part)[-MAX_BODY:]
