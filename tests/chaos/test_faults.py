"""Every fault, on one installation under load: no slot unaccounted, none judged twice, back within its bound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict

import pytest
import pytest_asyncio

from tests.chaos.conftest import under_load
from tests.chaos.faults import Fault
from tests.chaos.installation import Installation
from tests.chaos.report import Record
from tests.chaos.rows import CLOCKS, NATS, POSTGRES, PROCESSES, QUICK
from tests.chaos.suite import play

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def with_stepped_clocks(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    installation = Installation(tmp_path_factory.mktemp("clocks"), entry="tests.chaos.stepped_clock")
    async for running in under_load(installation):
        yield running


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
async def test_every_slot_is_accounted_for(chaos: Installation, fault: Fault, record_property: Record) -> None:
    await balances(chaos, fault, record_property)


@pytest.mark.whole
@pytest.mark.parametrize("fault", [*PROCESSES, *NATS, *POSTGRES], ids=lambda fault: fault.name)
async def test_every_slot_is_accounted_for_whatever_happens(
    chaos: Installation, fault: Fault, record_property: Record
) -> None:
    await balances(chaos, fault, record_property)


@pytest.mark.whole
@pytest.mark.parametrize("fault", CLOCKS, ids=lambda fault: fault.name)
async def test_a_clock_that_is_set_costs_no_slot(
    with_stepped_clocks: Installation, fault: Fault, record_property: Record
) -> None:
    await balances(with_stepped_clocks, fault, record_property)


async def balances(chaos: Installation, fault: Fault, record: Record) -> None:
    row = await play(chaos, fault)
    record("row", asdict(row))
    print("\n".join((*row.problems, *row.details)))
    assert not row.problems, row.details
