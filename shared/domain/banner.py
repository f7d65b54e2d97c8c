"""Bytes of a plain TCP conversation, written by people as text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from shared.domain import effort
from shared.domain.comparison import KEPT_PATTERNS, MAX_PATTERN, pattern_options

BANNER_LIMIT = 65_536
"""Bytes that are looked at before a banner counts as one that does not match."""

SEARCHED_AT_ONCE = 2**18
"""Sizes of patterns times bytes that take five milliseconds at the very worst."""

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_SIMPLE = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""The bytes of a text in UTF-8 with the escapes \r \n \t \0 \\ and \xNN; ``ValueError`` for any other."""
    parts: list[bytes] = []
    position = 0
    for found in _ESCAPE.finditer(text):
        parts += [text[position : found.start()].encode(), _escaped(found[1])]
        position = found.end()
    return b"".join([*parts, text[position:].encode()])


def _escaped(code: str) -> bytes:
    if len(code) == 3:
        return bytes.fromhex(code[1:])
    if code not in _SIMPLE:
        raise ValueError(f"'\\{code}' is not an escape: write \\r \\n \\t \\0 \\xNN, or \\\\ for a backslash")
    return _SIMPLE[code]


@lru_cache(maxsize=KEPT_PATTERNS)
def compile_banner(pattern: str) -> Any:
    """Compile an RE2 expression over bytes; raises ``ValueError`` that says what RE2 refuses."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN} characters")
    options = pattern_options()
    options.encoding = re2.Options.Encoding.LATIN1  # one byte, one character: a banner need not be text at all
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args else "unknown"
        raise ValueError(f"the pattern is not an RE2 expression ({reason})") from None


def banner_matches(pattern: str, received: bytes) -> bool:
    """Whether it is in there; raises ``TooMuchEffortError``."""
    compiled = compile_banner(pattern)
    effort.match(compiled.programsize, len(received))
    return compiled.search(received) is not None


def is_laborious(pattern: str, received: int) -> bool:
    """Whether a search of so many bytes may take longer than others should wait."""
    return bool(compile_banner(pattern).programsize * received > SEARCHED_AT_ONCE)
