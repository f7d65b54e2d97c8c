"""Plays a fault on a running installation and judges the books afterwards."""

from __future__ import annotations

import asyncpg

from shared.testing.tocsin import eventually
from tests.chaos.books import ON_TIME_MS, Books, read_books, run_twice
from tests.chaos.faults import Fault
from tests.chaos.installation import Installation, clock
from tests.chaos.report import Row

CALM_SECONDS = 90.0
DETAILS = 12
_BEFORE_MS = 15_000


async def play(chaos: Installation, fault: Fault) -> Row:
    """One row of the table: the span from just before the fault until all monitors are checked on time again."""
    await chaos.leader()
    begins_ms = clock.now_ms()
    mended_ms = await fault.play(chaos)
    await all_on_time_after(chaos, max(mended_ms, clock.now_ms()))
    ends_ms = clock.now_ms()
    books = await settled_books(chaos, begins_ms, ends_ms, fault.settled)
    return judge(fault, books, mended_ms, await _extra_runs(chaos, begins_ms, ends_ms))


async def all_on_time_after(chaos: Installation, moment_ms: int) -> None:
    """Return when every monitor was checked on time, in each of its regions, for a slot after this moment."""

    async def on_time() -> bool:
        try:
            books = await read_books(chaos.database_url, moment_ms, clock.now_ms())
        except (OSError, asyncpg.PostgresError):
            return False
        return chaos.places <= {
            (row.key.monitor_id, row.key.region) for row in books.run if row.lateness_ms <= ON_TIME_MS
        }

    await eventually("every monitor is checked on time again", on_time, within=CALM_SECONDS, every=0.5)


async def settled_books(chaos: Installation, begins_ms: int, ends_ms: int, within: float) -> Books:
    """The books as soon as they balance, or as they stand after ``within`` seconds."""
    deadline = clock.monotonic() + within

    async def settled() -> Books | None:
        books = await read_books(chaos.database_url, begins_ms, ends_ms)
        return books if not books.unaccounted or clock.monotonic() > deadline else None

    books: Books = await eventually("the books", settled, within=within + 10, every=0.5)
    return books


async def _extra_runs(chaos: Installation, begins_ms: int, ends_ms: int) -> list[tuple[str, int]]:
    """Requests within the span that belong to no result; read from before it, for the checks under way there."""
    books = await read_books(chaos.database_url, begins_ms - _BEFORE_MS, ends_ms)
    requests = [entry for entry in await chaos.requests_since(books.begins_ms) if entry[1] <= ends_ms]
    return [entry for entry in run_twice(books.run, requests, chaos.paths) if entry[1] > begins_ms]


def judge(fault: Fault, books: Books, mended_ms: int, extra: list[tuple[str, int]]) -> Row:
    """``extra`` are the requests without a result of their own."""
    recovery_ms = max(0, books.recovered_ms() - mended_ms)
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(books.reasons.items()))
    found = {
        f"{len(books.unaccounted)} unaccounted": bool(books.unaccounted),
        f"{len(books.unscheduled)} not due": bool(books.unscheduled),
        f"{len(books.doubled)} double results": bool(books.doubled),
        f"{len(books.missed)} missed": bool(books.missed) and not fault.missed,
        f"{len(books.alarms)} false alarms": bool(books.alarms),
        f"{len(extra)} run twice": len(extra) > fault.reruns,
        "recovery too slow": recovery_ms > fault.recovery * 1000,
        "a check too late": fault.lateness is not None and books.latest_ms() > fault.lateness * 1000,
        "gap too long": fault.gap is not None and books.longest_gap_ms() > fault.gap * 1000,
    }
    return Row(
        fault=fault.name,
        due=books.due,
        run=len(books.run),
        missed=len(books.missed),
        unaccounted=len(books.unaccounted),
        doubled=len(books.doubled),
        run_twice=len(extra),
        longest_gap_ms=books.longest_gap_ms(),
        latest_ms=books.latest_ms(),
        recovery_ms=recovery_ms,
        bound_ms=round(fault.recovery * 1000),
        reasons=reasons,
        problems=tuple(problem for problem, is_true in found.items() if is_true),
        details=_details(books, extra),
        missed_slots=tuple(f"{row.key.message_id} {row.reason}: {row.message}" for row in books.missed),
    )


def _details(books: Books, extra: list[tuple[str, int]]) -> tuple[str, ...]:
    """What to look at first, in seconds since the fault."""

    def since(moment_ms: int) -> str:
        return f"{(moment_ms - books.begins_ms) / 1000:.2f} s"

    late = sorted((row for row in books.run if row.lateness_ms > ON_TIME_MS), key=lambda row: -row.lateness_ms)
    return (
        *(f"unaccounted {key.message_id} due at {since(key.slot_ms)}" for key in books.unaccounted[:DETAILS]),
        *(f"missed {row.key.message_id} due at {since(row.key.slot_ms)}: {row.reason}, {row.message}"
          for row in books.missed[:DETAILS]),
        *(f"alarm {row.key.message_id} due at {since(row.key.slot_ms)}: {row.reason}, {row.message}"
          for row in books.alarms[:DETAILS]),
        *(f"late {row.key.message_id} due at {since(row.key.slot_ms)}, {row.lateness_ms} ms"
          for row in late[:DETAILS]),
        *(f"run twice {path} at {since(arrived)}" for path, arrived in extra[:DETAILS]),
    )  # fmt: skip
