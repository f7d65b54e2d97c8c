"""What an http check may ask for: bodies, credentials, ways, versions; what cannot work is refused by field."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trustme
from pydantic import TypeAdapter, ValidationError

from shared.contracts.sealing import MASK, Sealer
from shared.domain.checks import CheckSpec, FormBody, HttpCheck, JsonBody

ADAPTER: TypeAdapter[CheckSpec] = TypeAdapter(CheckSpec)
OAUTH2 = {"kind": "oauth2", "token_url": "https://id.example/token", "client_id": "me", "client_secret": "S3CRET"}


def check(**fields: Any) -> HttpCheck:
    return HttpCheck.model_validate({"url": "https://shop.example/", **fields})


@pytest.fixture(scope="module")
def pair() -> tuple[str, str]:
    leaf = trustme.CA().issue_cert("me@shop.example")
    return leaf.cert_chain_pems[0].bytes().decode(), leaf.private_key_pem.bytes().decode()


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (JsonBody(value={"a": ["ü", None, 1.5]}), ("application/json", '{"a":["ü",null,1.5]}'.encode())),
        (JsonBody(value=None), ("application/json", b"null")),
        (FormBody(fields={"a b": "x&y", "ü": "="}), ("application/x-www-form-urlencoded", b"a+b=x%26y&%C3%BC=%3D")),
    ],
)
def test_bodies_are_sent_as_their_kind_says(body: JsonBody | FormBody, sent: tuple[str, bytes]) -> None:
    assert body.encode() == sent
    assert check(method="POST", body=body.model_dump()).body == body


@pytest.mark.parametrize(
    ("fields", "field", "word"),
    [
        ({"body": 5}, "body", '"kind": "json"'),
        ({"body": {"kind": "xml", "value": 1}}, "body", '"kind": "json"'),
        ({"body": {"kind": "json"}}, "body.json.value", "required"),
        ({"body": {"kind": "json", "value": {"a": float("nan")}}}, "body.json.value", "JSON"),
        ({"body": {"kind": "json", "value": "x" * 70_000}}, "body.json.value", "longer"),
        ({"body": {"kind": "form", "fields": {}}}, "body.form.fields", "at least 1"),
        ({"body": {"kind": "form", "fields": {"a": 1}}}, "body.form.fields.a", "string"),
        ({"body": "x" * 70_000}, "body.text", "65536"),
        ({"method": "HEAD", "body": {"kind": "json", "value": 1}}, "", "HEAD"),
        ({"auth": {"kind": "ntlm"}}, "auth", "digest"),
        ({"auth": {"kind": "digest", "username": "u", "password": "a\nb"}}, "auth.digest.password", "control"),
        ({"auth": {**OAUTH2, "token_url": "ftp://x/"}}, "auth.oauth2.token_url", "http or https"),
        ({"auth": {**OAUTH2, "token_url": "https://u:p@x/"}}, "auth.oauth2.token_url", "user and password"),
        ({"auth": OAUTH2, "headers": {"Authorization": "x"}}, "", "exclude"),
        ({"proxy": {"url": "ftp://h:1"}}, "proxy.url", "socks5://host:port"),
        ({"proxy": {"url": "http://h:1/path"}}, "proxy.url", "http://host:port"),
        ({"proxy": {"url": "http://h:99999"}}, "proxy.url", "65535"),
        ({"proxy": {"url": "http://127.1:1"}}, "proxy.url", "IPv4"),
        ({"proxy": {"url": "http://h:1", "password": "p"}}, "proxy", "user name"),
        ({"proxy": {"url": "http://h:1", "username": "a:b", "password": "p"}}, "proxy", "':'"),
        ({"proxy": {"url": "http://u:p@h:1", "username": "u"}}, "proxy", "twice"),
        ({"proxy": {"url": "socks5://h:1", "username": "u" * 300}}, "proxy.username", "255"),
        ({"resolver": ["dns.example"]}, "resolver.0", "1.1.1.1:53"),
        ({"resolver": ["1.1.1.1:0"]}, "resolver.0", "1.1.1.1:53"),
        ({"resolver": ["1.1.1.1:x"]}, "resolver.0", "1.1.1.1:53"),
        ({"resolver": ["1.1.1.1"] * 5}, "resolver", "4"),
        ({"resolver": ["1.1.1.1"], "proxy": {"url": "http://h:1"}}, "", "proxy that resolves"),
        ({"url": "http://a.example/", "http_version": "2", "proxy": {"url": "http://h:1"}}, "", "HTTP/1.1 only"),
        ({"url": "http://[::1]/", "ip_family": "4"}, "", "IPv4"),
        ({"http_version": "3"}, "http_version", "'auto', '1.1' or '2'"),
        ({"tls": {"min_version": "1.1"}}, "tls.min_version", "1.3"),
        ({"tls": {"client_certificate": {"certificate": "x", "key": "y"}}}, "certificate", "BEGIN CERTIFICATE"),
        ({"method": "HEAD", "assertions": [{"source": "body_bytes", "operator": "gt", "value": 1}]}, "", "HEAD"),
    ],
)
def test_what_cannot_work_is_refused_by_field(fields: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        check(**fields)
    problems = [(".".join(map(str, error["loc"])), error["msg"]) for error in refusal.value.errors()]
    assert any(field in place and word in message for place, message in problems), problems


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("1.1.1.1", "1.1.1.1:53"),
        ("1.1.1.1:5353", "1.1.1.1:5353"),
        ("2606:4700::1111", "[2606:4700::1111]:53"),
        ("[2606:4700::1111]", "[2606:4700::1111]:53"),
        ("[2606:4700:0::1111]:54", "[2606:4700::1111]:54"),
    ],
)
def test_a_name_server_is_kept_in_one_form(text: str, normal: str) -> None:
    assert check(resolver=[text]).resolver == [normal]


def test_the_user_of_a_proxy_moves_out_of_its_url() -> None:
    proxy = check(proxy={"url": "socks5://u%40d:p%3d@h:1"}).proxy
    assert proxy
    assert (proxy.url, proxy.username, proxy.password) == ("socks5://h:1", "u@d", "p=")


def test_a_client_certificate_needs_its_own_key(pair: tuple[str, str]) -> None:
    certificate, key = pair
    check(tls={"client_certificate": {"certificate": certificate, "key": key}})
    other = trustme.CA().issue_cert("other@shop.example").private_key_pem.bytes().decode()
    for wrong, word in ((other, "does not belong"), ("nonsense", "no PEM private key")):
        with pytest.raises(ValidationError, match=word):
            check(tls={"client_certificate": {"certificate": certificate, "key": wrong}})


def everything_secret(pair: tuple[str, str]) -> HttpCheck:
    return check(
        method="POST",
        auth=OAUTH2,
        body={"kind": "form", "fields": {"password": "hunter2", "a": "b"}},
        proxy={"url": "http://h:1", "username": "u", "password": "pr0xy"},
        tls={"client_certificate": {"certificate": pair[0], "key": pair[1]}},
    )


def test_every_secret_is_sealed_masked_and_kept_when_its_mask_comes_back(pair: tuple[str, str]) -> None:
    sealer, whole = Sealer(["k" * 32]), everything_secret(pair)
    stored = sealer.seal(whole)
    for secret in ("S3CRET", "hunter2", "pr0xy", pair[1][40:80]):
        assert secret not in json.dumps(stored)
    assert sealer.open(stored) == whole
    masked = sealer.masked(stored)
    assert masked["body"]["fields"] == {"password": MASK, "a": "b"}
    assert masked["tls"]["client_certificate"]["key"] == MASK
    assert sealer.open(sealer.seal(ADAPTER.validate_python(masked), stored)) == whole


def test_json_that_looks_like_a_seal_is_left_alone() -> None:
    body = {"kind": "json", "value": {"$sealed": "x", "deep": {"$sealed": "y"}}}
    sealer = Sealer(["k" * 32])
    stored = sealer.seal(check(method="POST", body=body))
    assert sealer.masked(stored)["body"] == body
    assert sealer.open(stored).model_dump()["body"] == body


def test_a_check_of_the_first_release_is_still_read() -> None:
    old = {
        "kind": "http", "url": "https://shop.example/health", "method": "POST", "headers": {"X-Probe": "1"},
        "body": "text", "auth": {"kind": "bearer", "token": "t"}, "follow_redirects": True, "max_redirects": 10,
        "ip_family": "auto", "tls": {"verify": True, "expiry_warning_days": [30, 14, 7]}, "assertions": [],
    }  # fmt: skip
    assert ADAPTER.validate_python(old) == ADAPTER.validate_python(ADAPTER.validate_python(old).model_dump())
