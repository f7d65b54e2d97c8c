"""Checks that a person waits for: asked of a worker of the region, answered with the verdict."""

from __future__ import annotations

import msgspec

from shared.contracts.names import run_now_subject
from shared.contracts.wire import RunNow, RunNowAnswer
from shared.messaging.connect import NatsConnection
from shared.messaging.errors import MessagingError
from shared.messaging.requests import NobodyAnswersError, ask
from shared.services.errors import NoWorkerError, RunTimeoutError

GRACE_SECONDS = 3.0


class NatsCheckDesk:
    """Runs checks through whichever worker of the region is free."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    async def run(self, request: RunNow) -> RunNowAnswer:
        """Raises ``NoWorkerError`` or ``RunTimeoutError``; each names the region."""
        options = request.run
        attempts = options.retries + 1
        budget = attempts * options.timeout_seconds + options.retries * options.retry_delay_seconds + GRACE_SECONDS
        try:
            payload = msgspec.json.encode(request)
            answer = await ask(self._connection, run_now_subject(request.region), payload, timeout=budget)
        except NobodyAnswersError as error:
            raise NoWorkerError(f"no worker runs in region {request.region!r}") from error
        except MessagingError as error:
            raise RunTimeoutError(
                f"the worker in region {request.region!r} did not answer in {budget:g} s"
            ) from error
        return msgspec.json.decode(answer, type=RunNowAnswer)
