"""Every fault, on one installation under load: no slot unaccounted, none judged twice, back within its bound."""

from __future__ import annotations

import pytest

from tests.chaos.conftest import ROWS
from tests.chaos.faults import QUICK, Fault
from tests.chaos.installation import Installation
from tests.chaos.suite import play

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
async def test_every_slot_is_accounted_for(chaos: Installation, fault: Fault) -> None:
    row = await play(chaos, fault)
    ROWS.append(row)
    assert not row.problems, row
