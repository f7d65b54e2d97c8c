"""Texts of users' own: a small part of Liquid, in which nothing can loop, grow or reach beyond its values.

A template that fails when it is used must not cost a notification: the default text goes out instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any

from liquid import Environment, Mode, Node, RenderContext, StrictUndefined
from liquid.builtin.expressions.primitive import RangeLiteral
from liquid.exceptions import LiquidError, LiquidSyntaxError
from liquid.expression import Expression
from liquid.template import BoundTemplate
from pydantic import Field

from shared.domain.notification import (
    IncidentFacts,
    MonitorFacts,
    Notification,
    Words,
    moment,
    one_line,
    printable,
    shortened,
    words_of,
)
from shared.domain.spec import Strict

SOURCE_LIMIT = 4096
OUTPUT_LIMIT = 8192
TITLE_LIMIT = 250
_TAGS = ("content", "output", "illegal", "if", "unless", "case", "assign", "comment", "#")
# None of these makes its result much larger than what goes in: "replace" or "join" of a range would.
_FILTERS = ("upcase", "downcase", "capitalize", "default", "strip", "truncate", "append", "prepend", "size")


class Templates(Strict):
    """Liquid for the title and the text; what is left out keeps its default."""

    title: Annotated[str | None, Field(min_length=1, max_length=500)] = None
    body: Annotated[str | None, Field(min_length=1, max_length=SOURCE_LIMIT)] = None


class TemplateFailedError(ValueError):
    """A template cannot be used; the text says why."""


class _Sandbox(Environment):
    context_depth_limit = 5
    loop_iteration_limit = 1
    local_namespace_limit = OUTPUT_LIMIT
    output_stream_limit = OUTPUT_LIMIT


def _sandbox() -> Environment:
    environment = _Sandbox(tolerance=Mode.STRICT, undefined=StrictUndefined)
    environment.tags = {name: environment.tags[name] for name in _TAGS}
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    return environment


_ENVIRONMENT = _sandbox()


def check(templates: Templates, samples: Iterable[Notification]) -> None:
    """Raises ``TemplateFailedError`` for a template that cannot be parsed, or rendered for one of the samples."""
    for sample in samples:
        apply(templates, sample)


def apply(templates: Templates, notification: Notification) -> Words:
    """The words of a notification; raises ``TemplateFailedError``."""
    words = words_of(notification)
    values = _values(notification, words)
    title = one_line(_render(templates.title, values)) if templates.title else words.title
    body = printable(_render(templates.body, values)).strip() if templates.body else None
    return Words(shortened(title or words.title, TITLE_LIMIT), words.facts, body)


def _render(source: str, values: dict[str, Any]) -> str:
    try:
        return str(_parsed(source).render(**values))
    except LiquidError as error:
        raise TemplateFailedError(shortened(one_line(str(error.message or error)), 200)) from None
    except (MemoryError, RecursionError, ValueError, TypeError, ArithmeticError) as error:
        raise TemplateFailedError(f"it cannot be rendered: {type(error).__name__}") from None


@lru_cache(maxsize=512)
def _parsed(source: str) -> BoundTemplate:
    template = _ENVIRONMENT.from_string(source)
    context = RenderContext(template)
    if any(isinstance(part, RangeLiteral) for node in _nodes(template.nodes, context) for part in _parts(node)):
        raise LiquidSyntaxError("ranges like (1..5) are not available here", token=None)
    return template


def _nodes(nodes: Iterable[Node], context: RenderContext) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _nodes(node.children(context), context)


def _parts(node: Node) -> Iterator[Expression]:
    waiting = list(node.expressions())
    while waiting:
        part = waiting.pop()
        yield part
        waiting += part.children()


def _values(notification: Notification, words: Words) -> dict[str, Any]:
    """Everything a template can name: texts, and objects of texts. What does not apply is an empty text."""
    incident, monitor, result = (
        notification.data.incident,
        notification.data.monitor,
        notification.data.result or {},
    )
    return {
        "event": notification.type.value,
        "time": moment(notification.timestamp),
        "title": words.title,
        "text": words.lines,
        "incident": _texts(incident, IncidentFacts),
        "monitor": {**_texts(monitor, MonitorFacts), "tags": _Tags(monitor.tags if monitor else {})},
        "result": {name: _text(result.get(name)) for name in ("status", "region", "attempts")},
    }


class _Tags(dict[str, str]):
    """A tag that a monitor does not have is an empty text, not a mistake."""

    def __missing__(self, _: str) -> str:
        return ""


def _texts(record: IncidentFacts | MonitorFacts | None, kind: type[Any]) -> dict[str, str]:
    return {each.name: _text(getattr(record, each.name, None)) for each in fields(kind)}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return moment(value) if isinstance(value, datetime) else str(value)
