"""The JSON in which tasks travel: what taskiq reads, written by splicing bytes."""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec
from nats.aio.msg import Msg
from taskiq.abc.formatter import TaskiqFormatter
from taskiq.message import BrokerMessage, TaskiqMessage


class _Task(msgspec.Struct):
    task_id: str
    task_name: str
    args: list[Any]
    kwargs: dict[str, Any]
    labels: dict[str, Any]
    labels_types: dict[str, int] | None = None


_DECODER: Final = msgspec.json.Decoder(_Task)


def encode_task(task_name: str, task_id: str, payload: bytes) -> bytes:
    """The wire form of a task whose one positional argument is ``payload``: JSON that is already encoded.

    ``payload`` is copied as it is; whether it is valid JSON only the receiver finds out.
    """
    encode = msgspec.json.encode
    return b'{"task_id":%b,"task_name":%b,"labels":{},"labels_types":null,"args":[%b],"kwargs":{}}' % (
        encode(task_id),
        encode(task_name),
        payload,
    )


class DecodedTask(bytes):
    """The content of a message together with what it says, so that nobody has to decode it twice."""

    task: TaskiqMessage
    message: Msg

    @classmethod
    def of(cls, message: Msg, task: TaskiqMessage) -> Self:
        content = cls(message.data)
        content.task, content.message = task, message
        return content


class TaskFormatter(TaskiqFormatter):
    """taskiq's messages as JSON, checked on reading; several times faster than the default formatter."""

    def dumps(self, message: TaskiqMessage) -> BrokerMessage:
        return BrokerMessage(
            task_id=message.task_id,
            task_name=message.task_name,
            message=msgspec.json.encode(message.model_dump(mode="json")),
            labels=message.labels,
        )

    def loads(self, message: bytes) -> TaskiqMessage:
        """Raises ``ValueError`` for what is not a task (``msgspec.DecodeError`` is one)."""
        if isinstance(message, DecodedTask):
            return message.task
        try:
            task = _DECODER.decode(message)
        except RecursionError as error:
            raise ValueError(str(error)) from None
        return TaskiqMessage.model_construct(
            task_id=task.task_id,
            task_name=task.task_name,
            labels=task.labels,
            labels_types=task.labels_types,
            args=task.args,
            kwargs=task.kwargs,
        )
