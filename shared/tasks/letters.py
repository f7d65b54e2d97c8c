"""A dead letter: work that failed for good, with all that is needed to understand it and to do it again."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from shared.contracts.names import PLATFORM, dead_letter_subject
from shared.domain.clock import to_datetime

RAW_LIMIT: Final = 512 * 1024
UNREADABLE: Final = "unreadable"

Form = Literal["task", "json", "base64"]


class Attempt(msgspec.Struct, frozen=True):
    """An attempt that failed. ``at_ms`` is when it began, ``seconds`` how long it took."""

    at_ms: int
    error_kind: str
    message: str
    worker: str
    seconds: float = 0.0

    @property
    def ended_ms(self) -> int:
        return self.at_ms + round(self.seconds * 1000)


class LetterError(msgspec.Struct, frozen=True):
    """The last failure; ``kind`` as in ``failures``."""

    kind: str
    message: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the stream ``DEAD_LETTERS``.

    ``subject`` is where the message came from and where a replay goes. ``form`` says what ``arguments`` are: those
    of a task, a whole message that is JSON, or ``{"base64": …}`` of one that is not; ``truncated`` means that only
    its beginning could be kept.
    """

    id: UUID
    task: str
    task_id: str | None
    organisation_id: UUID | None
    arguments: msgspec.Raw
    error: LetterError
    attempts: tuple[Attempt, ...]
    failed_at: datetime
    worker: str
    subject: str
    form: Form = "task"
    truncated: bool = False
    v: Literal[1] = 1

    @property
    def place(self) -> str:
        """The subject of the letter itself."""
        return dead_letter_subject(self.organisation_id, self.task, self.id)


@dataclass(frozen=True, slots=True)
class View:
    """Whose letters: those of ``organisations``, among which None is the platform; without any, everybody's."""

    organisations: tuple[UUID | None, ...] | None = None

    def owners(self) -> tuple[str, ...]:
        """The second token of the subjects in view."""
        if self.organisations is None:
            return ("*",)
        return tuple(str(organisation or PLATFORM) for organisation in self.organisations)


EVERYTHING: Final = View()
_decoder: Final = msgspec.json.Decoder(DeadLetter)


def encode_letter(letter: DeadLetter) -> bytes:
    return msgspec.json.encode(letter)


def decode_letter(data: bytes) -> DeadLetter:
    """Raises ``msgspec.DecodeError`` for what no release of ours wrote."""
    return _decoder.decode(data)


def letter_id(moment_ms: int, identity: str) -> UUID:
    """A UUIDv7 that is the same however often it is computed: it names a failure by its time and its message."""
    tail = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:10], "big")
    high = (moment_ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (tail >> 68 & 0xFFF) << 64
    return UUID(int=high | 0b10 << 62 | tail & (1 << 62) - 1)


def raw_arguments(payload: bytes) -> tuple[msgspec.Raw, Form, bool]:
    """A message that is no task as it is kept: arguments, form, truncated or not."""
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        # As part of a letter JSON loses the white space around it, and a replay sends the same bytes or none.
        if len(payload) <= RAW_LIMIT and payload == payload.strip(b" \t\r\n"):
            return msgspec.Raw(payload), "json", False
    kept: dict[str, Any] = {"base64": base64.b64encode(payload[:RAW_LIMIT]).decode()}
    return msgspec.Raw(msgspec.json.encode(kept)), "base64", len(payload) > RAW_LIMIT


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    """The public form of a letter."""
    return {
        "id": letter.id,
        "task": letter.task,
        "task_id": letter.task_id,
        "organisation_id": letter.organisation_id,
        "arguments": letter.arguments,
        "error": letter.error,
        "attempts": [
            {
                "at": to_datetime(attempt.at_ms),
                "error_kind": attempt.error_kind,
                "message": attempt.message,
                "worker": attempt.worker,
                "seconds": attempt.seconds,
            }
            for attempt in letter.attempts
        ],
        "failed_at": letter.failed_at,
        "worker": letter.worker,
    }
