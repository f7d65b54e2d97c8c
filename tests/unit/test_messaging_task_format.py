from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from taskiq import InMemoryBroker
from taskiq.formatters.json_formatter import JSONFormatter
from taskiq.formatters.proxy_formatter import ProxyFormatter
from taskiq.message import TaskiqMessage

from shared.messaging.task_format import TaskFormatter, encode_task

_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(name=_TEXT, task_id=_TEXT, argument=_VALUES)
def test_a_spliced_task_reads_the_same_with_every_formatter(name: str, task_id: str, argument: Any) -> None:
    wire = encode_task(name, task_id, json.dumps(argument).encode())
    wanted = TaskiqMessage(task_id=task_id, task_name=name, labels={}, args=[argument], kwargs={})
    for formatter in (JSONFormatter(), ProxyFormatter(InMemoryBroker()), TaskFormatter()):
        assert formatter.loads(wire) == wanted


@given(labels=st.dictionaries(_TEXT, _TEXT, max_size=3), argument=_VALUES)
def test_what_the_formatter_writes_it_reads_back(labels: dict[str, str], argument: Any) -> None:
    message = TaskiqMessage(
        task_id="id",
        task_name="name",
        labels=labels,
        labels_types=dict.fromkeys(labels, 3),
        args=[],
        kwargs={"a": argument},
    )
    assert TaskFormatter().loads(TaskFormatter().dumps(message).message) == message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"task_id":1}',
        b"\x80\x04K*.",
        b"\xff",
        encode_task("a", "b", b"[" * 200_000 + b"]" * 200_000),
    ],
    ids=["empty", "list", "text", "other", "pickle", "no-utf-8", "too-deep"],
)
def test_what_is_not_a_task_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 # the type is the contract, the text is the decoder's
        TaskFormatter().loads(body)
