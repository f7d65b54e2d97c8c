"""Where the chance of a test comes from."""

from __future__ import annotations

import os
import random


def new_dice() -> random.Random:
    """Thrown anew each time, and always the same where ``CI`` is set, as Hypothesis has it: a change is judged by
    what it changed. The seed is printed, which pytest shows when the test fails.
    """
    seed = 1 if "CI" in os.environ else random.randrange(2**32)
    print("seed", seed)
    return random.Random(seed)
