"""What keeps an embedded server from starting."""

from __future__ import annotations


class EmbeddedServerError(Exception):
    """One line that names the problem and, where there is one, the mend."""
