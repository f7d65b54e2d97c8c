"""Values that a step takes out of its answer, and a step with such values put in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from shared.domain import effort
from shared.domain.auth import Auth
from shared.domain.checks_http import FormBody, JsonBody
from shared.domain.checks_steps import MAX_VALUE, Extraction, HttpStep, StepRequest
from shared.domain.comparison import found_in, type_name, well_formed
from shared.domain.effort import TooMuchEffortError
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.evaluate_http import json_of
from shared.domain.jsonpath import PathFailedError, find_values
from shared.domain.judge import UnreadableError
from shared.domain.observation import HttpObservation
from shared.domain.steps_template import (
    UnsetVariableError,
    Value,
    Values,
    in_json,
    in_text_body,
    in_url,
    plain,
    text_of,
)

_FILLED = frozenset({"url", "headers", "body", "auth"})


@dataclass(frozen=True, slots=True)
class Extracted:
    """The values that were found, and why the first of the others was not."""

    values: Mapping[str, Value] = field(default_factory=dict)
    error: CheckError | None = None


def extract(step: StepRequest, seen: HttpObservation, cookies: Mapping[str, str]) -> Extracted:
    """Take out what can be, also of an answer that is not as it should be: a cleanup may need it."""
    effort.begin()
    values: dict[str, Value] = {}
    error: CheckError | None = None
    for each in step.extract:
        try:
            values[each.name] = _usable(each, _READ[each.source](each, seen, cookies))
        except UnreadableError as unreadable:
            fault = unreadable.error
            error = error or CheckError(fault.kind, f"variable {each.name!r}: {fault.message}")
    return Extracted(values, error)


def _usable(wanted: Extraction, value: Any) -> Value:
    if not isinstance(value, str | int | float):
        raise _fault(
            wanted, ErrorKind.ASSERTION_FAILED, f"is {type_name(value)}: only text, numbers and booleans do"
        )
    if len(text_of(value)) > MAX_VALUE:
        raise _fault(wanted, ErrorKind.ASSERTION_FAILED, f"is longer than {MAX_VALUE} characters")
    return well_formed(value) if isinstance(value, str) else value


def _fault(wanted: Extraction, kind: ErrorKind, wording: str) -> UnreadableError:
    return UnreadableError(CheckError(kind, f"{wanted.source} {wanted.path} {wording}"))


def _from_json(wanted: Extraction, seen: HttpObservation, _: Mapping[str, str]) -> Any:
    try:
        found = find_values(wanted.path, json_of(seen))
    except PathFailedError as error:
        raise _fault(wanted, ErrorKind.JSON_ERROR, f"cannot be followed: {error}") from None
    if not found:
        raise _fault(wanted, ErrorKind.JSON_PATH_MISSING, "does not exist")
    return found[0]


def _from_header(wanted: Extraction, seen: HttpObservation, _: Mapping[str, str]) -> str:
    value = seen.header(wanted.path)
    if value is None:
        raise _fault(wanted, ErrorKind.ASSERTION_FAILED, "does not exist")
    return value


def _from_body(wanted: Extraction, seen: HttpObservation, _: Mapping[str, str]) -> str:
    try:
        found = found_in(seen.text, wanted.path)
    except TooMuchEffortError as error:
        raise _fault(wanted, ErrorKind.ASSERTION_FAILED, f"cannot be searched: {error}") from None
    value = found and found[1 if found.re.groups else 0]
    if value is None:
        raise _fault(wanted, ErrorKind.KEYWORD_MISSING, "does not match")
    return str(value)


def _from_cookie(wanted: Extraction, _: HttpObservation, cookies: Mapping[str, str]) -> str:
    if wanted.path not in cookies:
        raise _fault(wanted, ErrorKind.ASSERTION_FAILED, "was not set")
    return cookies[wanted.path]


_READ = {"json": _from_json, "header": _from_header, "regex": _from_body, "cookie": _from_cookie}


class UnfitValueError(Exception):
    """A step cannot be sent with the values it was given; the message says why."""


def request_of(step: HttpStep, values: Values, secret: frozenset[str]) -> StepRequest:
    """What is sent for a step; raises ``UnfitValueError``, which quotes no value of a ``secret`` variable."""
    try:
        fields = {name: getattr(step, name) for name in HttpStep.model_fields if name not in _FILLED}
        return StepRequest.model_validate({**fields, **_filled(step, values)})
    except UnsetVariableError as error:
        raise UnfitValueError(str(error)) from None
    except ValidationError as error:
        raise UnfitValueError(_worded(error, step, secret)) from None


def _filled(step: HttpStep, values: Values) -> dict[str, Any]:
    return {
        "url": in_url(step.url, values),
        "headers": {name: plain(value, values) for name, value in step.headers.items()},
        "body": _body(step, values),
        "auth": _auth(step.auth, values),
    }


def _body(step: HttpStep, values: Values) -> Any:
    match step.body:
        case str() as text:
            types = (value for name, value in step.headers.items() if name.lower() == "content-type")
            return in_text_body(text, values, next(types, "").lower())
        case JsonBody(value=value):
            return {"kind": "json", "value": in_json(value, values)}
        case FormBody(fields=fields):
            return {"kind": "form", "fields": {name: plain(value, values) for name, value in fields.items()}}
    return None


def _auth(auth: Auth | None, values: Values) -> dict[str, Any] | None:
    if auth is None:
        return None
    texts = {name: value for name, value in auth.model_dump().items() if isinstance(value, str)}
    return {
        name: in_url(text, values) if name == "token_url" else plain(text, values) for name, text in texts.items()
    }


def _worded(error: ValidationError, step: HttpStep, secret: frozenset[str]) -> str:
    """The words of pydantic quote the value, so they are only told where nothing secret was put in."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "the request"
    used = ", ".join(sorted(step.variables))
    reason = "" if step.variables & secret else f": {first['msg'].removeprefix('Value error, ')}"
    return f"{field} cannot be sent with the values of its variables ({used}){reason}"
