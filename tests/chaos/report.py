"""One row per fault, and the table that ends up in ``docs/resilience.md``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Record = Callable[[str, object], None]

_COLUMNS = (
    "fault", "due", "run", "missed, reported", "unaccounted", "double results", "run twice",
    "longest gap", "latest start", "recovery", "bound", "verdict",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault did. Times in milliseconds.

    ``problems`` is empty when all promises were kept; ``details`` names slots to look at, ``missed_slots`` every
    one that was reported as missed.
    """

    fault: str
    due: int
    run: int
    missed: int
    unaccounted: int
    doubled: int
    run_twice: int
    longest_gap_ms: int
    latest_ms: int
    recovery_ms: int
    bound_ms: int
    reasons: str = ""
    problems: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    missed_slots: tuple[str, ...] = ()

    def cells(self) -> tuple[str, ...]:
        return (
            self.fault,
            str(self.due),
            str(self.run),
            f"{self.missed} ({self.reasons})" if self.missed else "0",
            *map(str, (self.unaccounted, self.doubled, self.run_twice)),
            *(f"{value / 1000:.2f} s" for value in (self.longest_gap_ms, self.latest_ms, self.recovery_ms)),
            f"{self.bound_ms / 1000:g} s",
            "; ".join(self.problems) or "green",
        )


def table(rows: Sequence[Row]) -> str:
    """Markdown, readable as it is."""
    cells = [_COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(_COLUMNS))]
    head, *body = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body])
