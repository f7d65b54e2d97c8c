"""What the terminal shows."""

from __future__ import annotations

import io

import pytest

from cli.console import Console
from shared.domain.clock import SystemClock
from shared.testing.clock import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_plain_text() -> None:
    stream = io.StringIO()
    Console(stream, SystemClock(), {}).done("ready")
    assert stream.getvalue() == "✔ ready\n"


def test_a_terminal_gets_colours_unless_no_color_is_set() -> None:
    coloured, plain = Terminal(), Terminal()
    Console(coloured, SystemClock(), {}).done("ready")
    Console(plain, SystemClock(), {"NO_COLOR": "1"}).done("ready")
    assert "\x1b[32m" in coloured.getvalue()
    assert plain.getvalue() == "✔ ready\n"


def test_an_event_carries_its_time() -> None:
    stream = io.StringIO()
    Console(stream, FakeClock(), {}).event("stopping")
    assert stream.getvalue() == "08:00:00 stopping\n"


def test_a_terminal_that_cannot_show_a_sign_gets_another_one() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Console(stream, SystemClock(), {}).done("ready")
    assert raw.getvalue() == b"? ready\n"


def test_a_closed_terminal_stops_nothing() -> None:
    stream = io.StringIO()
    console = Console(stream, SystemClock(), {})
    stream.close()
    console.done("ready")


@pytest.mark.parametrize("details", [[], ["one", "two"]])
def test_a_failure_shows_its_details_indented(details: list[str]) -> None:
    stream = io.StringIO()
    Console(stream, SystemClock(), {}).failure("api ended", details)
    assert stream.getvalue().splitlines() == ["✘ api ended", *(f"    {line}" for line in details)]
