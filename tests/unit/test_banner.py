"""Bytes written as text, and patterns over bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain import effort
from shared.domain.banner import banner_matches, unescape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"PING\r\n", b"PING\r\n"),
        (r"\x00\xfF\0\t", b"\x00\xff\x00\t"),
        (r"a\\r", b"a\\r"),
        ("grüß", "grüß".encode()),
        ("real\nline", b"real\nline"),
    ],
)
def test_escapes_stand_for_bytes(text: str, expected: bytes) -> None:
    assert unescape(text) == expected


@pytest.mark.parametrize("text", ["\\", "a\\", r"\q", r"\x1", r"\xgg", "\\\n", r"\u1234"])
def test_another_escape_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        unescape(text)


@pytest.mark.parametrize(
    ("pattern", "received", "matches"),
    [
        ("^220 ", b"220 mail", True),
        ("^220 ", b"\n220 mail", False),
        (r"(?i)ssh-2\.0", b"SSH-2.0-x", True),
        (r"^\x00\xff", b"\x00\xff\x01", True),
        ("grüß", "ein grüß".encode(), True),
        (r"\+PONG\r\n", b"+PONG\r\n", True),
    ],
)
def test_patterns_are_over_bytes(pattern: str, received: bytes, matches: bool) -> None:
    effort.begin()
    assert banner_matches(pattern, received) is matches


@given(st.text(max_size=60), st.binary(max_size=200))
def test_no_text_breaks_either(text: str, received: bytes) -> None:
    effort.begin()
    for use in (lambda: unescape(text), lambda: banner_matches(text, received)):
        try:
            use()
        except (ValueError, UnicodeEncodeError):
            pass
