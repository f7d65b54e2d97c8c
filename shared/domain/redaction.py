"""What no result, message or log may show, and the one way it is taken out.

Two things are masked: what sounds secret by its name (headers, parameters of a URL, the user part of a URL), and
the values that a check itself declares secret, wherever a target repeats them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote_plus, urlsplit

from pydantic import BaseModel

from shared.domain.errors import CheckError
from shared.domain.headers import is_sensitive_header, sounds_secret
from shared.domain.result import AssertionOutcome, CheckVerdict, HttpFacts
from shared.domain.spec import Secret
from shared.domain.url import is_secret_parameter

MASK = "***"
MIN_SECRET = 4
"""Shorter values are left alone: masking every "1" of a text hides the text and tells the secret."""

CUT = "…"
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}:/{2})[^/\s@\"'<>]{1,500}@", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&;])([^=&;?\s\"'<>#]{1,100})=([^&;\s\"'<>#]+)")


def secrets_of(spec: BaseModel) -> tuple[str, ...]:
    """The secrets of a specification in all forms in which an answer might repeat them, longest first."""
    return forms_of(_declared(spec))


def forms_of(secrets: Iterable[str]) -> tuple[str, ...]:
    """What ``hide`` takes: the secrets as they are and as they are written in URLs and JSON, longest first."""
    found = {form for secret in secrets for form in _forms(secret)}
    return tuple(sorted((form for form in found if len(form) >= MIN_SECRET), key=lambda form: (-len(form), form)))


def _declared(part: BaseModel) -> Iterator[str]:
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        secret = any(isinstance(mark, Secret) for mark in field.metadata)
        if isinstance(value, BaseModel):
            yield from _declared(value)
        elif isinstance(value, list):
            for member in value:
                if isinstance(member, BaseModel):
                    yield from _declared(member)
        elif isinstance(value, dict) and secret:
            yield from value.values()
        elif isinstance(value, str) and secret:
            yield value
            yield from _as_basic(part, value)
        elif isinstance(value, str) and name.endswith("url"):
            yield from _in_query(value)
        elif isinstance(value, dict):
            yield from _named(value)


def _as_basic(part: BaseModel, secret: str) -> Iterator[str]:
    """How basic authentication sends it, also that of RFC 6749: who shows the request shows this."""
    user = getattr(part, "username", None) or getattr(part, "client_id", None)
    if isinstance(user, str):
        for pair in (f"{user}:{secret}", f"{quote_plus(user)}:{quote_plus(secret)}"):
            yield base64.b64encode(pair.encode()).decode("ascii")


def _in_query(url: str) -> Iterator[str]:
    """Values of parameters whose names sound secret, decoded and as they are written."""
    for pair in urlsplit(url).query.split("&"):
        name, _, value = pair.partition("=")
        if is_secret_parameter(name):
            yield value
            yield unquote_plus(value)


def _named(value: Any, name: str = "") -> Iterator[str]:
    """Texts of headers, form fields and JSON bodies whose name sounds secret."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _named(member, str(key))
    elif isinstance(value, list):
        for member in value:
            yield from _named(member, name)
    elif isinstance(value, str) and sounds_secret(name):
        yield value
        yield value.rpartition(" ")[2]  # "Bearer abc" may come back as "abc"


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]


@lru_cache(maxsize=2048)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, secrets)))


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """The text with a mask for each secret, also for one that a cut has left the beginning of."""
    if not secrets:
        return text
    masked = _pattern(secrets).sub(MASK, text)
    if CUT not in masked:
        return masked
    *cut, last = masked.split(CUT)
    return CUT.join([*(_without_beginning(piece, secrets) for piece in cut), last])


def _without_beginning(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        for length in range(min(len(secret), len(text)), MIN_SECRET - 1, -1):
            if text.endswith(secret[:length]):
                return text[:-length] + MASK
    return text


def scrub(text: str) -> str:
    """A text of strangers or a log line: the user parts and the secret parameters of URLs in it are masked."""
    text = _USERINFO.sub(rf"\1{MASK}@", text)
    return _PARAMETER.sub(_masked_parameter, text)


def _masked_parameter(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}={MASK}" if is_secret_parameter(found[2]) else found[0]


def redact_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Header fields with the values of the sensitive ones masked."""
    return tuple((name, MASK if is_sensitive_header(name) else scrub(value)) for name, value in headers)


def redact_verdict(verdict: CheckVerdict, secrets: tuple[str, ...]) -> CheckVerdict:
    """The verdict without any of the secrets, wherever a target or an assertion has put them."""
    if not secrets:
        return verdict
    return replace(
        verdict,
        error=_error(verdict.error, secrets),
        http=_facts(verdict.http, secrets),
        assertions=tuple(_outcome(outcome, secrets) for outcome in verdict.assertions),
    )


def _error(error: CheckError | None, secrets: tuple[str, ...]) -> CheckError | None:
    return error and CheckError(error.kind, hide(error.message, secrets))


def _facts(facts: HttpFacts | None, secrets: tuple[str, ...]) -> HttpFacts | None:
    if facts is None:
        return None
    redirects = tuple(replace(hop, url=hide(hop.url, secrets)) for hop in facts.redirects)
    return replace(facts, redirects=redirects, final_url=facts.final_url and hide(facts.final_url, secrets))


def _outcome(outcome: AssertionOutcome, secrets: tuple[str, ...]) -> AssertionOutcome:
    return replace(
        outcome,
        expected=_hide_value(outcome.expected, secrets),
        actual=_hide_value(outcome.actual, secrets),
        message=outcome.message and hide(outcome.message, secrets),
    )


def _hide_value(value: Any, secrets: tuple[str, ...]) -> Any:
    match value:
        case str():
            return hide(value, secrets)
        case list():
            return [_hide_value(member, secrets) for member in value]
        case dict():
            return {hide(name, secrets): _hide_value(member, secrets) for name, member in value.items()}
    return value
