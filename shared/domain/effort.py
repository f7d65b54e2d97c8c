"""What judging one answer may cost.

Patterns, paths and schemas are a user's and the answer is a stranger's: together they can ask for any amount of
work. So the work is counted, and its end is an error like any other.
"""

from __future__ import annotations

from contextvars import ContextVar

MAX_STEPS = 200_000
"""JSON values visited and rules of schemas applied for one answer: about two seconds."""

MAX_MATCHING = 2**28
"""Sizes of patterns times the lengths of texts, for one answer: at the very worst six seconds, nearly always
a few milliseconds."""

_COMPILING = 500
"""What making a pattern ready counts, in characters that it is held against."""


class TooMuchEffortError(Exception):
    """The answer takes more work to be judged than one check may have; the text says what took it."""


class _Effort:
    __slots__ = ("matching", "steps")

    def __init__(self) -> None:
        self.steps, self.matching = MAX_STEPS, MAX_MATCHING


_left: ContextVar[_Effort] = ContextVar("effort")


def begin() -> None:
    """From here on another answer is judged, in this context. The functions below raise ``LookupError`` before."""
    _left.set(_Effort())


def step(count: int = 1) -> None:
    """So many JSON values or rules more; raises ``TooMuchEffortError``."""
    effort = _left.get()
    effort.steps -= count
    if effort.steps < 0:
        raise TooMuchEffortError(f"the document takes more than {MAX_STEPS} steps: ask for less of it")


def match(size: int, length: int) -> None:
    """One more pattern of so many instructions and text of so many characters; raises ``TooMuchEffortError``."""
    effort = _left.get()
    effort.matching -= size * (length + _COMPILING)
    if effort.matching < 0:
        raise TooMuchEffortError(
            f"a pattern of size {size} takes too long for {length} characters: write it without long repetitions"
        )
