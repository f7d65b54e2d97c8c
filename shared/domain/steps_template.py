"""``{{name}}`` in the fields of a request: where names stand, and what takes their place.

A value never changes the structure of what it is put into: it is percent-encoded in a URL and in a form, escaped in
JSON, and a header that it would break is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

Value = str | int | float | bool
"""What a variable holds: a JSON scalar."""
Values = Mapping[str, Value]

VARIABLE_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]{0,59}"
_PLACE = re.compile(r"\{\{(" + VARIABLE_NAME + r")\}\}")
_ONLY_PLACE = re.compile(r"(?:[A-Za-z]+ )?" + _PLACE.pattern)
_SAMPLES = ("a", "1")
_SAMPLE_ADDRESSES = ("https://a.example", "https://a.example/a", "https")
_MISSPELT = re.compile(r"\{\{([^{}]{0,60})\}\}")


class UnsetVariableError(Exception):
    """A variable has no value (yet); ``name`` says which."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the variable {name!r} has no value: the step that extracts it did not")


def texts_in(part: Any) -> Iterator[str]:
    """All texts in a JSON value or a model, names of members aside."""
    match part:
        case str():
            yield part
        case dict():
            for member in part.values():
                yield from texts_in(member)
        case list():
            for member in part:
                yield from texts_in(member)
        case BaseModel():
            yield from texts_in({name: getattr(part, name) for name in type(part).model_fields})


def names_in(part: Any) -> Iterator[str]:
    """The names of all variables in it."""
    return (found[1] for text in texts_in(part) for found in _PLACE.finditer(text))


def sampled(text: str, sample: str = "a") -> str:
    """The text with something that a value might be."""
    return _PLACE.sub(sample, text)


def sample_urls(url: str) -> Iterator[str]:
    """A URL with values that its variables might have; when none of these is an address, no value will do."""
    first = _PLACE.match(url)
    rest = url[first.end() :] if first else url
    for beginning in _SAMPLE_ADDRESSES if first else ("",):
        yield from (beginning + sampled(rest, sample) for sample in _SAMPLES)


def misspelt_in(text: str) -> str | None:
    """What stands between double braces and is no name of a variable; null when there is nothing like it."""
    return next((found[1] for found in _MISSPELT.finditer(text) if not re.fullmatch(VARIABLE_NAME, found[1])), None)


def is_only_a_variable(text: str) -> bool:
    """Whether a text holds nothing but a variable, perhaps behind a word as in ``Bearer {{token}}``."""
    return _ONLY_PLACE.fullmatch(text) is not None


def text_of(value: Value) -> str:
    """A value as text: numbers and booleans as JSON writes them."""
    return value if isinstance(value, str) else json.dumps(value)


def plain(text: str, values: Values) -> str:
    """The text with values as they are; raises ``UnsetVariableError``, as all of these do."""
    return _filled(text, values, text_of)


def in_url(text: str, values: Values) -> str:
    """A URL: a variable at its very beginning is an address and stands as it is, all others are percent-encoded.

    So does a path right behind that address: its value begins with a slash.
    """
    first = _PLACE.match(text)
    if first is None:
        return _filled(text, values, _percent)
    beginning, end = plain(first[0], values), first.end()
    second = _PLACE.match(text, end)
    if second and (path := plain(second[0], values)).startswith("/"):
        beginning, end = beginning + path, second.end()
    return beginning + _filled(text[end:], values, _percent)


def in_text_body(text: str, values: Values, content_type: str) -> str:
    """A body that is text: escaped as its content type wants it, else as it is."""
    if "json" in content_type:
        return _filled(text, values, _json)
    if "x-www-form-urlencoded" in content_type:
        return _filled(text, values, lambda value: quote_plus(text_of(value)))
    return plain(text, values)


def in_json(part: Any, values: Values) -> Any:
    """A JSON value: a text that is nothing but one variable becomes its value with its type."""
    match part:
        case str():
            whole = _PLACE.fullmatch(part)
            return _looked_up(whole[1], values) if whole else plain(part, values)
        case dict():
            return {name: in_json(member, values) for name, member in part.items()}
        case list():
            return [in_json(member, values) for member in part]
    return part


def _filled(text: str, values: Values, write: Callable[[Value], str]) -> str:
    return _PLACE.sub(lambda found: write(_looked_up(found[1], values)), text)


def _looked_up(name: str, values: Values) -> Value:
    if name not in values:
        raise UnsetVariableError(name)
    return values[name]


def _percent(value: Value) -> str:
    return quote(text_of(value), safe="")


def _json(value: Value) -> str:
    # Inside quotes that stand in the text; a number between none stays a number.
    return json.dumps(value, ensure_ascii=False)[1:-1] if isinstance(value, str) else json.dumps(value)
