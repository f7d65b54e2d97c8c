"""The new release takes over what the previous one wrote: before the upgrade, and beside it while it rolls out."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from shared.contracts.wire import ResultMessage
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.domain.result import CheckVerdict, ResultStatus
from shared.services.recording import record
from tests.migration.first_release import FirstRelease
from tests.migration.test_upgrade import REVISIONS, bring_to

_FILLED = text("""
    SELECT (SELECT count(*) FROM organisations WHERE is_operator) AS operators,
        (SELECT count(*) FROM monitors AS m WHERE NOT EXISTS (
            SELECT FROM state_periods AS p WHERE p.monitor_id = m.id AND p.ends_at IS NULL)) AS without_period,
        (SELECT count(*) FROM monitor_state AS s JOIN state_periods AS p ON p.monitor_id = s.monitor_id
            WHERE p.ends_at IS NULL AND p.status <> s.status) AS contradicting
""")
_STATES = text("""
    SELECT s.status, p.status FROM monitor_state AS s
    LEFT JOIN state_periods AS p ON p.monitor_id = s.monitor_id AND p.ends_at IS NULL
    WHERE s.monitor_id = ANY(CAST(:monitors AS uuid[]))
""")


async def test_what_is_new_is_filled_for_what_was_there(empty_url: str) -> None:
    await bring_to(empty_url, REVISIONS[0])
    async with Database(empty_url, application_name="tests") as database:
        for _ in range(2):
            await FirstRelease(database).use()
    await bring_to(empty_url)
    async with Database(empty_url, application_name="tests") as database, database.system() as session:
        filled = (await session.execute(_FILLED)).one()
    assert tuple(filled) == (1, 0, 0)


@pytest.mark.parametrize("created_on", ["old schema", "new schema"])
async def test_the_new_recorder_judges_monitors_of_the_previous_release(empty_url: str, created_on: str) -> None:
    await bring_to(empty_url, REVISIONS[0] if created_on == "old schema" else "head")
    async with Database(empty_url, application_name="tests") as database:
        release = FirstRelease(database)
        await release.use()
    await bring_to(empty_url)
    now, left = SystemClock().now_ms(), release.monitors[:2]
    revisions = dict(zip(left, (2, 3), strict=True))  # edited; paused and resumed
    messages = [
        ResultMessage(monitor, revision, region, now + 1, now + 1, CheckVerdict(ResultStatus.UP))
        for monitor, revision in revisions.items()
        for region in ("default", "eu")
    ]
    async with Database(empty_url, application_name="tests") as database:
        async with database.system() as session:
            await record(session, messages, now + 2)
        async with database.system() as session:
            states = (await session.execute(_STATES, {"monitors": left})).all()
    assert [tuple(state) for state in states] == [("up", "up")] * 2
