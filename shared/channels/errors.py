"""Why a notification did not go out, and whether it may go out later.

ChannelError
├── TemporaryError    the service, or the way to it, may work later
└── PermanentError    the same message will be refused again: address, rights or content are wrong
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from shared.channels.record import Receipt
from shared.domain.comparison import well_formed
from shared.domain.errors import MESSAGE_LIMIT
from shared.domain.notification import shortened
from shared.domain.redaction import hide, scrub


class ChannelError(Exception):
    """The base. ``receipt`` is what the service answered, as far as it did."""

    def __init__(self, message: str, receipt: Receipt | None = None) -> None:
        super().__init__(message)
        self.receipt = receipt or Receipt()

    def redacted(self, secrets: tuple[str, ...]) -> Self:
        """The error as text that can be stored, without the channel's secrets, wherever they were repeated."""
        self.args = (shortened(_shown(str(self), secrets), MESSAGE_LIMIT),)
        self.receipt = redact_receipt(self.receipt, secrets)
        return self


class TemporaryError(ChannelError):
    """``retry_after``: the seconds the service asked for. ``is_uncertain``: it may have taken the message."""

    def __init__(
        self,
        message: str,
        receipt: Receipt | None = None,
        *,
        retry_after: float | None = None,
        is_uncertain: bool = False,
    ) -> None:
        super().__init__(message, receipt)
        self.retry_after, self.is_uncertain = retry_after, is_uncertain


class PermanentError(ChannelError):
    """Only a person can mend it."""


def redact_receipt(receipt: Receipt, secrets: tuple[str, ...]) -> Receipt:
    """What the service answered, as text that can be stored, without the secrets of the channel."""
    if receipt.excerpt is None:
        return receipt
    return replace(receipt, excerpt=_shown(receipt.excerpt, secrets))


def _shown(answer: str, secrets: tuple[str, ...]) -> str:
    # Mail servers answer in any encoding: what is no text could not be stored, and would be sent again for ever.
    return hide(scrub(well_formed(answer)), secrets)
