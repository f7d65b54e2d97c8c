"""``tocsin jobs list``: what a person reads of the jobs."""

from __future__ import annotations

from datetime import UTC, datetime

from cli.jobs import table
from shared.services.jobs import JobView

WELL = JobView(
    name="forget_answers",
    every_seconds=3600,
    last_started_at=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
    last_success_at=datetime(2026, 3, 4, 5, 6, 8, tzinfo=UTC),
    last_duration_ms=12,
    last_status="succeeded",
    last_error=None,
    processed=1,
    runs=7,
    failures=0,
    timeouts=0,
    skipped=0,
    silent=False,
)


def test_a_job_that_failed_says_why() -> None:
    failed = WELL._replace(
        name="drop_partitions", last_status="failed", last_error="the table\nis in use", silent=True
    )
    head, well, broken = table([WELL, failed])
    assert head.endswith("LAST ERROR")
    assert well.split() == ["forget_answers", "1h", "2026-03-04", "05:06:08Z", "succeeded", "7", "0", "0"]
    assert "silent, failed" in broken
    assert broken.endswith("the table is in use")
