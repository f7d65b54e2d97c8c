"""What can go wrong around a job; what a job itself raises is passed on as it is.

JobError
├── JobDeclarationError   the declaration is wrong; raised at import, with the mend
├── JobNotStartedError    a server that a run needs did not answer
├── JobTimedOutError      the run is over its timeout
└── LockLostError         another run may have begun: this one must not write any more
"""

from __future__ import annotations


class JobError(Exception):
    """Base of everything this package raises."""


class JobDeclarationError(JobError):
    """A job is declared in a way that can't work; the message names the mend."""


class JobNotStartedError(JobError):
    """The database or NATS did not let the run start; it is tried again when the job is triggered again."""


class JobTimedOutError(JobError):
    """The run took longer than its timeout."""


class LockLostError(JobError):
    """The run's lock ran out or was taken over; what it had not committed is taken back."""
