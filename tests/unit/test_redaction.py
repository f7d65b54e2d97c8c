"""Secrets are taken out of texts in every form in which they may appear, and nothing else is."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.checks import HttpCheck
from shared.domain.redaction import forms_of, hide, redact_headers, scrub, secrets_of
from shared.http.request import basic


def spec(**fields: object) -> HttpCheck:
    return HttpCheck.model_validate({"url": "http://a.example/", **fields})


@pytest.mark.parametrize(
    ("fields", "secret"),
    [
        ({"url": "http://u:hunter2@a.example/"}, "hunter2"),
        ({"url": "http://a.example/?api_key=abc%2Fdef"}, "abc/def"),
        ({"headers": {"Authorization": "Bearer abcdef"}}, "abcdef"),
        ({"headers": {"X-Api-Key": "abcdef"}}, "abcdef"),
        ({"auth": {"kind": "bearer", "token": "abcdef"}}, "abcdef"),
        ({"auth": {"kind": "digest", "username": "u", "password": "abcdef"}}, "abcdef"),
        (
            {"auth": {"kind": "oauth2", "token_url": "http://t/", "client_id": "i", "client_secret": "abcdef"}},
            "abcdef",
        ),
        ({"url": "http://a.example/?api_key=abc%2fdef"}, "abc%2fdef"),
        ({"url": "http://a.example/?jwt=abcdef"}, "abcdef"),
        ({"proxy": {"url": "http://u:abcdef@p:1"}}, "abcdef"),
        ({"method": "POST", "body": {"kind": "form", "fields": {"password": "abcdef"}}}, "abcdef"),
        ({"method": "POST", "body": {"kind": "form", "fields": {"log": "u", "pwd": "abcdef"}}}, "abcdef"),
        ({"method": "POST", "body": {"kind": "json", "value": {"passphrase": "abcdef"}}}, "abcdef"),
        ({"method": "POST", "body": {"kind": "json", "value": {"login": [{"password": "abcdef"}]}}}, "abcdef"),
    ],
)
def test_a_check_knows_its_secrets(fields: dict[str, object], secret: str) -> None:
    assert secret in secrets_of(spec(**fields))
    assert hide(f"it is {secret}.", spec(**fields).secrets) == "it is ***."


def test_basic_credentials_are_known_in_the_form_they_are_sent() -> None:
    assert "dTpodW50ZXIy" in spec(url="http://u:hunter2@a.example/").secrets


def test_credentials_of_a_client_are_known_in_the_form_they_are_sent() -> None:
    auth = {"kind": "oauth2", "token_url": "http://t/", "client_id": "a b", "client_secret": "hunter/2"}
    sent = basic(quote_plus("a b"), quote_plus("hunter/2"))
    assert hide(f"not {sent}", spec(auth=auth).secrets) == "not Basic ***"


def test_what_is_no_secret_stays() -> None:
    check = spec(url="http://a.example/?page=17", headers={"Accept": "text/html"}, body="long text")
    assert check.secrets == ()
    assert hide("page 17 of text/html", check.secrets) == "page 17 of text/html"


def test_short_secrets_do_not_shred_a_text() -> None:
    assert spec(url="http://u:abc@a.example/").secrets == ("dTphYmM=", "dTphYmM%3D")[::-1]


@given(st.text(min_size=4, max_size=40), st.text(max_size=50), st.text(max_size=50))
def test_no_form_of_a_secret_is_left(secret: str, before: str, after: str) -> None:
    forms = forms_of([secret])
    for form in (secret, quote(secret.encode("utf-8", "replace"), safe=""), json.dumps(secret)[1:-1]):
        if form in forms:
            hidden = hide(before + form + after, forms)
            assert form not in hidden or form in before + "***" + after


@pytest.mark.parametrize("length", range(4, 12))
def test_the_beginning_of_a_secret_in_front_of_a_cut_is_masked(length: int) -> None:
    secret = "correcthorse"
    text = f'is "xx{secret[:length]}…", expected'
    assert hide(text, (secret,)) == 'is "xx***…", expected'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see http://u:p@h/x", "see http://***@h/x"),
        ("postgresql://me:pw@db:5432/x failed", "postgresql://***@db:5432/x failed"),
        ("GET /a?token=abc&b=1#x", "GET /a?token=***&b=1#x"),
        ("a@b.example wrote", "a@b.example wrote"),
        ("/x?page=1&sort=a", "/x?page=1&sort=a"),
        ("/x?X-Amz-Signature=ff", "/x?X-Amz-Signature=***"),
    ],
)
def test_urls_in_texts_lose_their_secrets(text: str, expected: str) -> None:
    assert scrub(text) == expected


@given(st.text(alphabet="htp:/@?&=;keytoken #ü\n", max_size=2000))
def test_scrubbing_takes_any_text(text: str) -> None:
    scrub(text)


def test_headers_that_sound_secret_are_masked() -> None:
    headers = (("set-cookie", "a=b"), ("x-a", "1"), ("location", "/?key=5"))
    assert redact_headers(headers) == (("set-cookie", "***"), ("x-a", "1"), ("location", "/?key=***"))
