"""What can go wrong between us and NATS; foreign exceptions are mapped to these where they enter.

MessagingError
├── ConnectFailedError        no server within the deadline
├── StreamMismatchError       a stream or consumer exists with settings we cannot work with
├── ConsumerLostError         pulling could not be brought back: the process has to end
└── PublishError
    ├── PublishRejectedError  an answer: the message was not stored
    └── PublishUnknownError   no answer: the message may or may not be stored
        ├── NobodyListensError   the server says that nothing listens on the subject just now
        └── ConnectionLostError  we had no connection, or lost it before the answer
"""

from __future__ import annotations

STORE_FAILED = 10077
_SUBJECT_FULL = "per subject"


class MessagingError(Exception):
    """Base of everything this package raises."""


class ConnectFailedError(MessagingError):
    """No NATS server could be reached, or none let us in, before the deadline."""


class StreamMismatchError(MessagingError):
    """A stream or consumer exists with a setting that differs and that the server does not let us change."""

    def __init__(self, name: str, problem: str, mend: str) -> None:
        super().__init__(f"{name}: {problem}; {mend}")
        self.name = name


class ConsumerLostError(MessagingError):
    """A pull loop gave up; the process must end with a non-zero code so that its supervisor restarts it."""


class PublishError(MessagingError):
    """A message was not acknowledged by its stream."""


class PublishRejectedError(PublishError):
    """The server answered that it did not store the message.

    ``code`` is like an HTTP status, ``err_code`` is JetStream's own number (0 when there is none).
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{code}/{err_code} {description}")
        self.code = code
        self.err_code = err_code
        self.description = description

    @property
    def is_occupied(self) -> bool:
        """The subject still holds its one message: pending or being worked on. The new one was coalesced."""
        # A full disk or a byte limit carries the same number: only the text tells them apart.
        return self.err_code == STORE_FAILED and _SUBJECT_FULL in self.description


class PublishUnknownError(PublishError):
    """No answer came. Publish again with the same message id: the stream drops what it already has."""


class NobodyListensError(PublishUnknownError):
    """No stream with a leader, or no process, listens on the subject at this moment."""


class ConnectionLostError(PublishUnknownError):
    """The connection was missing or lost before an answer: nothing is known about who would have answered."""
