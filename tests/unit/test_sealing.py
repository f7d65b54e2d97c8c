"""Secrets are sealed where they are stored, masked where they are shown, and nothing else is touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from shared.contracts.sealing import MASK, MaskWithoutSecretError, MovedSecretError, Sealer, SealingError
from shared.domain.checks import CheckSpec

OLD, NEW = "o" * 32, "n" * 40
CHECKS: TypeAdapter[CheckSpec] = TypeAdapter(CheckSpec)
SECRETS = ("hunter2", "s3cr3t", "c00kie")


def check(**fields: Any) -> CheckSpec:
    return CHECKS.validate_python(
        {
            "kind": "http",
            "url": "https://shop.example/",
            "headers": {"X-Api-Key": "s3cr3t", "Cookie": "c00kie", "Accept": "*/*"},
            "auth": {"kind": "basic", "username": "probe", "password": "hunter2"},
            **fields,
        }
    )


def test_a_sealed_check_opens_to_itself_and_shows_no_secret() -> None:
    sealer = Sealer([OLD])
    stored = sealer.seal(check())
    assert not any(secret in json.dumps(stored) for secret in SECRETS)
    assert stored["headers"]["Accept"] == "*/*"
    assert stored["auth"]["username"] == "probe"
    assert sealer.open(stored) == check()
    assert sealer.open(json.loads(json.dumps(stored))) == check()


def test_fields_of_a_form_are_sealed_by_their_names() -> None:
    fields = {"log": "me", "pwd": "hunter2", "session": "s3cr3t", "csrf_token": "c00kie"}
    stored = Sealer([OLD]).seal(check(method="POST", body={"kind": "form", "fields": fields}))
    assert not any(secret in json.dumps(stored) for secret in SECRETS)
    assert stored["body"]["fields"]["log"] == "me"


def test_a_masked_check_needs_no_key_and_has_a_mask_for_each_secret() -> None:
    masked = Sealer([NEW]).masked(Sealer([OLD]).seal(check()))
    assert masked["headers"] == {"X-Api-Key": MASK, "Cookie": MASK, "Accept": "*/*"}
    assert masked["auth"] == {"kind": "basic", "username": "probe", "password": MASK}


def test_a_mask_written_back_keeps_the_seal_whatever_the_case_of_the_header() -> None:
    sealer = Sealer([OLD])
    stored = sealer.seal(check())
    masked = sealer.masked(stored)
    masked["headers"] = {name.lower(): value for name, value in masked["headers"].items()}
    again = sealer.seal(CHECKS.validate_python(masked), stored)
    assert again["auth"] == stored["auth"]
    assert again["headers"]["x-api-key"] == stored["headers"]["X-Api-Key"]


def test_a_secret_that_did_not_change_keeps_its_seal_and_another_one_gets_a_new_one() -> None:
    sealer = Sealer([OLD])
    stored = sealer.seal(check())
    assert sealer.seal(check(), stored) == stored
    changed = sealer.seal(check(auth={"kind": "bearer", "token": "other"}), stored)
    assert changed["headers"] == stored["headers"]
    opened = sealer.open(changed)
    assert opened.kind == "http"
    assert opened.auth is not None
    assert opened.auth.kind == "bearer"
    assert opened.auth.token == "other"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"auth": {"kind": "bearer", "token": MASK}}, ("auth", "token")),
        ({"headers": {"X-Other-Key": MASK}}, ("headers", "X-Other-Key")),
    ],
)
def test_a_mask_without_a_stored_secret_is_refused(fields: dict[str, Any], path: tuple[str, ...]) -> None:
    sealer = Sealer([OLD])
    for kept in (None, sealer.seal(check())):
        with pytest.raises(MaskWithoutSecretError) as refused:
            sealer.seal(check(**fields), kept)
        assert refused.value.path == path


def test_keys_rotate_by_putting_a_new_one_in_front() -> None:
    stored = Sealer([OLD]).seal(check())
    both = Sealer([NEW, OLD])
    assert both.open(stored) == check()
    fresh = both.seal(check())
    assert Sealer([NEW]).open(fresh) == check()
    with pytest.raises(SealingError, match="TOCSIN_SECRET_KEYS"):
        Sealer([OLD]).open(fresh)


def test_a_wrong_key_and_a_damaged_seal_are_one_clear_error() -> None:
    stored = Sealer([OLD]).seal(check())
    with pytest.raises(SealingError, match="TOCSIN_SECRET_KEYS"):
        Sealer([NEW]).open(stored)
    stored["auth"]["password"] = {"$sealed": "é"}
    with pytest.raises(SealingError, match="TOCSIN_SECRET_KEYS"):
        Sealer([OLD]).open(stored)


@pytest.mark.parametrize("keys", [[], ["short"], [OLD, "short"]])
def test_keys_that_are_too_short_are_refused(keys: list[str]) -> None:
    with pytest.raises(SealingError, match="TOCSIN_SECRET_KEYS"):
        Sealer(keys)


def test_what_looks_like_a_seal_in_an_assertion_or_a_header_name_is_none() -> None:
    sealer = Sealer([OLD])
    assertion = {"source": "json", "path": "$.a", "operator": "eq", "value": {"$sealed": "x"}}
    for fields in ({"assertions": [assertion]}, {"headers": {"$sealed": "x"}}):
        stored = sealer.seal(check(**fields))
        assert sealer.open(stored) == check(**fields)
        masked = sealer.masked(stored)
        assert all(masked[name] == stored[name] for name in fields)


def test_a_check_without_secrets_is_stored_as_it_is() -> None:
    plain = CHECKS.validate_python({"kind": "ssl", "host": "shop.example"})
    assert Sealer([OLD]).seal(plain) == plain.model_dump(mode="json")


URL_CHECK = {
    "kind": "http",
    "url": "https://shop.example/a",
    "auth": {"kind": "bearer", "token": "secret"},
    "headers": {},
}
MASKED = {**URL_CHECK, "auth": {"kind": "bearer", "token": MASK}}


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://evil.example/a"},
        {"url": "http://shop.example/a"},
        {"url": "https://shop.example:8443/a"},
        {"proxy": {"url": "http://evil.example:3128"}},
        {"resolver": ["192.0.2.53"]},
    ],
    ids=["host", "scheme", "port", "proxy", "resolver"],
)
def test_a_mask_does_not_send_its_secret_somewhere_else(change: dict[str, Any]) -> None:
    sealer = Sealer([OLD])
    kept = sealer.seal(check(**URL_CHECK))
    with pytest.raises(MovedSecretError, match="write the secret itself") as refused:
        sealer.seal(check(**{**MASKED, **change}), kept)
    assert refused.value.path == ("auth", "token")
    sealer.seal(check(**{**URL_CHECK, **change}), kept)


@pytest.mark.parametrize(
    "change", [{"url": "https://SHOP.example/b?c=d"}, {"method": "HEAD"}], ids=["path", "method"]
)
def test_a_mask_keeps_its_secret_where_it_was_sent_before(change: dict[str, Any]) -> None:
    sealer = Sealer([OLD])
    kept = sealer.seal(check(**URL_CHECK))
    assert sealer.seal(check(**{**MASKED, **change}), kept)["auth"] == kept["auth"]
