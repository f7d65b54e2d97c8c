"""Kind ``http_steps`` without a network: what is refused, what is put in, what is taken out, who decides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from shared.contracts.documents import ResultDetail, detail_of
from shared.contracts.sealing import MASK, MaskWithoutSecretError, Sealer
from shared.domain import evaluate_steps
from shared.domain.checks import CheckSpec, HttpStepsCheck
from shared.domain.checks_steps import HttpStep, StepRequest
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation import HttpObservation
from shared.domain.redaction import forms_of, secrets_of
from shared.domain.result import AssertionOutcome, CheckVerdict, HttpFacts, Redirect, ResultStatus, Timings
from shared.domain.steps_extract import Extracted, UnfitValueError, extract, request_of
from shared.domain.steps_observation import StepSeen, StepsObservation
from shared.domain.steps_template import Value, in_json, in_text_body, in_url, plain

URL = "https://shop.example/"
CHECKS: TypeAdapter[CheckSpec] = TypeAdapter(CheckSpec)


def step(**fields: Any) -> dict[str, Any]:
    return {"name": "one", "url": URL, **fields}


def check(*steps: dict[str, Any], **fields: Any) -> HttpStepsCheck:
    return HttpStepsCheck.model_validate({"kind": "http_steps", "steps": list(steps), **fields})


def request(
    values: dict[str, Value] | None = None, secret: frozenset[str] = frozenset(), **fields: Any
) -> StepRequest:
    return request_of(HttpStep.model_validate(step(**fields)), values or {}, secret)


TAKE = {"name": "id", "source": "json", "path": "$.id"}
REFUSED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "no step": ([], {}, "at least 1"),
    "21 steps": ([step(name=str(number)) for number in range(21)], {}, "at most 20"),
    "two of one name": ([step(), step()], {}, "two steps are called 'one'"),
    "cleanup of the same name": ([step()], {"cleanup": step()}, "two steps are called 'one'"),
    "unknown variable": ([step(url=URL + "{{id}}")], {}, "step 'one': {{id}} is neither given nor extracted"),
    "its own variable": ([step(url=URL + "{{id}}", extract=[TAKE])], {}, "{{id}} is neither given"),
    "variable in a body": ([step(method="POST", body="{{x}}")], {}, "{{x}} is neither given"),
    "variable in json": (
        [step(method="POST", body={"kind": "json", "value": {"a": ["{{x}}"]}})],
        {},
        "{{x}} is neither given",
    ),
    "variable in auth": ([step(auth={"kind": "bearer", "token": "{{x}}"})], {}, "{{x}} is neither given"),
    "blanks in braces": ([step(url=URL, headers={"X-Id": "{{ id }}"})], {"variables": {"id": 1}}, "write {{name}}"),
    "given twice": ([step()], {"variables": {"a": "1"}, "secrets": {"a": "2"}}, "'a' is named in variables and"),
    "extracted over a given one": ([step(extract=[TAKE])], {"variables": {"id": 1}}, "'id' is given already"),
    "a url no value mends": ([step(url="ftp://{{a}}/")], {"variables": {"a": "b"}}, "http or https"),
    "a header no value mends": (
        [step(headers={"X Id": "{{a}}"})],
        {"variables": {"a": "b"}},
        "is not a header name",
    ),
    "a variable name with a dash": ([step()], {"variables": {"a-b": "1"}}, "pattern"),
    "a path that is none": ([step(extract=[{**TAKE, "path": "id"}])], {}, "starts with '$'"),
    "a pattern that is none": ([step(extract=[{**TAKE, "source": "regex", "path": "("}])], {}, "RE2"),
    "a body of HEAD": ([step(method="HEAD", extract=[TAKE])], {}, "the answer to HEAD has no body"),
    "a variable in brackets": ([step(url="https://[::{{a}}]/")], {"variables": {"a": 1}}, "url"),
    "invert": ([step(invert=True)], {}, "Extra inputs"),
    "too long": (
        [step(name=str(number), method="POST", body="x" * 60_000) for number in range(5)],
        {},
        "longer than 256 KiB",
    ),
    "too many assertions": (
        [
            step(name=str(number), assertions=[{"source": "status", "operator": "eq", "value": 200}] * 30)
            for number in range(4)
        ],
        {},
        "more than 100 assertions",
    ),
}


@pytest.mark.parametrize(("steps", "fields", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_work_is_refused_with_the_reason(
    steps: list[dict[str, Any]], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        check(*steps, **fields)
    assert words in str(refused.value)


def test_twenty_steps_and_a_cleanup_are_accepted() -> None:
    spec = check(*(step(name=str(number)) for number in range(20)), cleanup=step(name="clean"))
    assert len(spec.every_step) == 21
    assert CHECKS.validate_python(spec.model_dump(mode="json")) == spec


URLS = {
    "a path is encoded": ("https://a.example/{{v}}/x", "a/b?c#d", "https://a.example/a%2Fb%3Fc%23d/x"),
    "a query is encoded": ("https://a.example/?q={{v}}&r=1", "a&b=c+d", "https://a.example/?q=a%26b%3Dc%2Bd&r=1"),
    "an address at the beginning stands": (
        "{{v}}/login",
        "https://a.example:8443/v1",
        "https://a.example:8443/v1/login",
    ),
    "a path behind an address stands": (
        "{{v}}{{p}}?a={{p}}",
        "https://a.example",
        "https://a.example/o/1?a=%2Fo%2F1",
    ),
    "a number": ("https://a.example/{{v}}", 42, "https://a.example/42"),
    "a boolean": ("https://a.example/{{v}}", True, "https://a.example/true"),
    "no braces in a value are filled": ("https://a.example/{{v}}", "{{v}}", "https://a.example/%7B%7Bv%7D%7D"),
}


@pytest.mark.parametrize(("url", "value", "filled"), URLS.values(), ids=URLS.keys())
def test_a_value_never_changes_the_structure_of_a_url(url: str, value: Value, filled: str) -> None:
    assert in_url(url, {"v": value, "p": "/o/1"}) == filled


def test_a_body_is_escaped_as_its_type_wants_it() -> None:
    values: dict[str, Value] = {"text": 'a"b\\\n', "number": 7, "yes": True}
    body = in_text_body('{"t": "{{text}}", "n": {{number}}, "y": {{yes}}}', values, "application/json")
    assert json.loads(body) == {"t": 'a"b\\\n', "n": 7, "y": True}
    assert in_text_body("a={{text}}", values, "application/x-www-form-urlencoded") == "a=a%22b%5C%0A"
    assert in_text_body("{{text}}", values, "text/plain") == 'a"b\\\n'
    assert in_json({"t": ["{{text}}"], "n": "{{number}}", "s": "no {{number}}"}, values) == {
        "t": ['a"b\\\n'],
        "n": 7,
        "s": "no 7",
    }


@given(st.text(max_size=50))
def test_any_text_survives_a_json_body_and_a_url(text: str) -> None:
    assert json.loads(in_text_body('{"a": "{{v}}"}', {"v": text}, "application/json")) == {"a": text}
    clean = text.encode("utf-8", "replace").decode()
    assert in_url("https://a.example/?q={{v}}", {"v": clean}).count("&") == 0
    assert plain("{{v}}", {"v": text}) == text


def test_every_field_of_a_request_is_filled() -> None:
    values: dict[str, Value] = {"a": "x y", "n": 3}
    filled = request(
        values,
        url=URL + "{{a}}",
        method="POST",
        headers={"X-A": "<{{a}}>"},
        body={"kind": "form", "fields": {"f": "{{n}}"}},
        auth={"kind": "basic", "username": "{{a}}", "password": "p{{n}}"},
    )
    assert filled.url == URL + "x%20y"
    assert filled.headers == {"X-A": "<x y>"}
    assert filled.body is not None
    assert not isinstance(filled.body, str)
    assert filled.body.encode()[1] == b"f=3"
    assert filled.auth is not None
    assert filled.auth.model_dump() == {"kind": "basic", "username": "x y", "password": "p3"}


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "no value": ({"url": URL + "{{other}}"}, "the variable 'other' has no value"),
    "a host it cannot be": ({"url": "https://{{v}}/"}, "url cannot be sent with the values of its variables (v)"),
    "a header it would break": ({"headers": {"X-A": "{{v}}"}}, "headers cannot be sent with"),
}


@pytest.mark.parametrize("secret", [True, False], ids=["secret", "shown"])
@pytest.mark.parametrize(("fields", "words"), UNFIT.values(), ids=UNFIT.keys())
def test_a_value_that_does_not_fit_fails_its_step(fields: dict[str, Any], words: str, secret: bool) -> None:
    with pytest.raises(UnfitValueError) as unfit:
        request({"v": "Geheim\r\nX-Evil: 1"}, frozenset({"v"} if secret else ()), **fields)
    assert words in str(unfit.value)
    assert not secret or "geheim" not in str(unfit.value).lower()


def answer(body: bytes = b"{}", *headers: tuple[str, str], **fields: Any) -> HttpObservation:
    return HttpObservation(
        Timings(total=5.0),
        **{"status_code": 200, "body": body, "headers": tuple(headers), "final_url": URL, **fields},
    )


TAKEN: dict[str, tuple[dict[str, Any], HttpObservation, Any]] = {
    "json text": ({"source": "json", "path": "$.a"}, answer(b'{"a": "x"}'), "x"),
    "json number": ({"source": "json", "path": "$.a"}, answer(b'{"a": 1.5}'), 1.5),
    "first of several": ({"source": "json", "path": "$[*]"}, answer(b"[7, 8]"), 7),
    "half a pair": ({"source": "json", "path": "$.a"}, answer(b'{"a": "x\\ud83d"}'), "x?"),
    "json null": ({"source": "json", "path": "$.a"}, answer(b'{"a": null}'), ErrorKind.ASSERTION_FAILED),
    "json missing": ({"source": "json", "path": "$.b"}, answer(b'{"a": 1}'), ErrorKind.JSON_PATH_MISSING),
    "no json": ({"source": "json", "path": "$.b"}, answer(b"<"), ErrorKind.JSON_ERROR),
    "too long": ({"source": "json", "path": "$"}, answer(b'"%s"' % (b"x" * 9000)), ErrorKind.ASSERTION_FAILED),
    "group": ({"source": "regex", "path": "id=(\\d+)"}, answer(b"id=12;"), "12"),
    "no group": ({"source": "regex", "path": "id=\\d+"}, answer(b"id=12;"), "id=12"),
    "group that took no part": ({"source": "regex", "path": "id=|(x)"}, answer(b"id="), ErrorKind.KEYWORD_MISSING),
    "no match": ({"source": "regex", "path": "y"}, answer(b"x"), ErrorKind.KEYWORD_MISSING),
    "header": ({"source": "header", "path": "X-Id"}, answer(b"", ("x-id", "9")), "9"),
    "no header": ({"source": "header", "path": "X-Id"}, answer(), ErrorKind.ASSERTION_FAILED),
    "cookie": ({"source": "cookie", "path": "sid"}, answer(), "c1"),
    "no cookie": ({"source": "cookie", "path": "no"}, answer(), ErrorKind.ASSERTION_FAILED),
}


@pytest.mark.parametrize(("wanted", "seen", "expected"), TAKEN.values(), ids=TAKEN.keys())
def test_a_value_is_taken_or_its_absence_named(
    wanted: dict[str, Any], seen: HttpObservation, expected: Any
) -> None:
    found = extract(request(extract=[{"name": "v", **wanted}]), seen, {"sid": "c1"})
    if isinstance(expected, ErrorKind):
        assert found.error is not None
        assert found.error.kind is expected
        assert "'v'" in found.error.message
        assert not found.values
    else:
        assert found == Extracted({"v": expected})


def test_what_can_be_taken_is_taken_although_another_value_is_missing() -> None:
    wanted = [{"name": "no", "source": "header", "path": "x-no"}, {"name": "id", "source": "json", "path": "$.id"}]
    found = extract(request(extract=wanted), answer(b'{"id": 1}'), {})
    assert found.values == {"id": 1}
    assert found.error is not None


SECRECY = {
    "by the name of the variable": ({"name": "access_token", "source": "json", "path": "$.a"}, True),
    "by the name of the header": ({"name": "v", "source": "header", "path": "X-Auth-Token"}, True),
    "every cookie": ({"name": "v", "source": "cookie", "path": "lang"}, True),
    "as it is said": ({"name": "token", "source": "json", "path": "$.a", "secret": False}, False),
    "others are shown": ({"name": "id", "source": "json", "path": "$.id"}, False),
}


@pytest.mark.parametrize(("wanted", "secret"), SECRECY.values(), ids=SECRECY.keys())
def test_what_sounds_secret_is_masked(wanted: dict[str, Any], secret: bool) -> None:
    asked = request(extract=[wanted])
    seen = evaluate_steps.step(asked, answer(b'{"a": "1"}'), Extracted({wanted["name"]: "abcdef"}), 0)
    assert seen.extracted == {wanted["name"]: "***" if secret else "abcdef"}


def test_the_step_that_takes_a_secret_does_not_show_it_either() -> None:
    asked = request(extract=[{"name": "token", "source": "json", "path": "$.t"}])
    seen = replace(answer(b'{"t": "abcdef"}', status_code=500), secrets=forms_of(["abcdef"]))
    judged = evaluate_steps.step(asked, seen, Extracted({"token": "abcdef"}), 0)
    assert judged.verdict.evidence is not None
    assert judged.verdict.evidence.body == '{"t": "***"}'


UP, DEGRADED, DOWN = ResultStatus.UP, ResultStatus.DEGRADED, ResultStatus.DOWN
DECIDES = {
    "all is well: the last": ({"a": UP, "b": UP, "clean": UP}, "b", UP),
    "the first that is down": ({"a": UP, "b": DOWN, "c": DOWN}, "b", DOWN),
    "down before degraded": ({"a": DEGRADED, "b": DOWN}, "b", DOWN),
    "degraded": ({"a": DEGRADED, "b": UP}, "a", DEGRADED),
    "the cleanup, when it alone fails": ({"a": UP, "clean": DOWN}, "clean", DOWN),
}


@pytest.mark.parametrize(("statuses", "name", "status"), DECIDES.values(), ids=DECIDES.keys())
def test_the_first_of_the_worst_steps_decides(
    statuses: dict[str, ResultStatus], name: str, status: ResultStatus
) -> None:
    spec = check(*(step(name=each) for each in "abc"), cleanup=step(name="clean"))
    seen = {
        each: StepSeen(
            CheckVerdict(
                state,
                error=None if state is UP else CheckError(ErrorKind.STATUS_CODE, f"of {each}"),
                timings_ms=Timings(dns=1.0, total=10.0),
                http=HttpFacts(final_url=each),
            )
        )
        for each, state in statuses.items()
    }
    verdict = evaluate_steps.http_steps(spec, StepsObservation(seen), 0)
    assert verdict.status is status
    assert verdict.http == HttpFacts(final_url=name)
    assert verdict.error == (
        None if status is UP else CheckError(ErrorKind.STATUS_CODE, f"step '{name}': of {name}")
    )
    assert verdict.timings_ms == Timings(dns=float(len(seen)), total=10.0 * len(seen))
    assert [each.skipped for each in verdict.steps] == [each not in seen for each in ("a", "b", "c", "clean")]


def test_the_largest_result_stays_below_a_mebibyte_and_survives_storage() -> None:
    long = "ä" * 1000
    outcome = AssertionOutcome("json", "eq", "e" * 200, "a" * 200, passed=False, path="p" * 500, message="m" * 500)
    facts = HttpFacts(200, "1.1", "127.0.0.1:1", tuple(Redirect(302, long) for _ in range(20)), 1, long)
    worst = CheckVerdict(
        DOWN, error=CheckError(ErrorKind.STATUS_CODE, long), http=facts, assertions=(outcome,) * 5, steps=()
    )
    spec = check(*(step(name=str(number)) for number in range(20)))
    taken = {f"v{number}": "x" * 200 for number in range(20)}
    seen = {str(number): StepSeen(worst, taken) for number in range(20)}
    verdict = evaluate_steps.http_steps(spec, StepsObservation(seen), 0)
    written = msgspec.json.encode(detail_of(verdict))
    assert len(written) < 1_000_000
    assert msgspec.json.decode(written, type=ResultDetail) == detail_of(verdict)


def secretive() -> HttpStepsCheck:
    return check(
        step(
            name="login",
            method="POST",
            headers={"X-Api-Key": "s3cr3t", "Cookie": "{{value}}", "Accept": "*/*"},
            auth={"kind": "basic", "username": "u", "password": "hunter2"},
            body={"kind": "json", "value": {"$sealed": "a text of the user", "steps": [{"$sealed": "x"}]}},
        ),
        step(name="use", headers={"Authorization": "Bearer {{value}}", "X-Key": "us3-k3y"}),
        variables={"user": "probe"},
        secrets={"value": "v4lue", "steps": "st3ps"},
        cleanup=step(name="clean", headers={"X-Token": "cl3an"}),
    )


def test_secrets_of_steps_are_sealed_masked_and_opened() -> None:
    sealer, spec = Sealer(["k" * 32]), secretive()
    stored = json.loads(json.dumps(sealer.seal(spec)))
    for secret in ("s3cr3t", "us3-k3y", "hunter2", "v4lue", "st3ps", "cl3an"):
        assert secret not in json.dumps(stored)
    assert sealer.open(stored) == spec
    masked = sealer.masked(stored)
    assert masked["secrets"] == {"value": MASK, "steps": MASK}
    assert masked["steps"][0]["headers"] == {"X-Api-Key": MASK, "Cookie": "{{value}}", "Accept": "*/*"}
    assert masked["steps"][1]["headers"] == {"Authorization": "Bearer {{value}}", "X-Key": MASK}
    assert masked["steps"][0]["body"] == stored["steps"][0]["body"]
    assert masked["cleanup"]["headers"] == {"X-Token": MASK}


def test_a_mask_written_back_follows_its_step_by_name() -> None:
    sealer = Sealer(["k" * 32])
    stored = sealer.seal(secretive())
    masked = sealer.masked(stored)
    masked["steps"].reverse()
    again = sealer.seal(CHECKS.validate_python(masked), stored)
    assert again["steps"] == stored["steps"][::-1]
    assert again["secrets"] == stored["secrets"]
    assert again["cleanup"] == stored["cleanup"]


def test_a_mask_in_a_step_of_another_name_is_refused() -> None:
    sealer = Sealer(["k" * 32])
    masked = sealer.masked(sealer.seal(secretive()))
    masked["steps"][0]["name"] = "renamed"
    with pytest.raises(MaskWithoutSecretError) as refused:
        sealer.seal(CHECKS.validate_python(masked), sealer.seal(secretive()))
    assert refused.value.path == ("steps", 0, "auth", "password")


def test_every_secret_of_a_check_of_steps_is_known_to_redaction() -> None:
    assert {"s3cr3t", "hunter2", "v4lue", "st3ps", "cl3an"} <= set(secrets_of(secretive()))
