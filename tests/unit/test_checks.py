"""What a check may look like, and how a refusal reads."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from shared.domain.checks import (
    AnyCheck,
    BasicAuth,
    BearerAuth,
    CheckSpec,
    HttpCheck,
    Secret,
    SslCheck,
    is_sensitive_header,
)

ADAPTER: TypeAdapter[AnyCheck] = TypeAdapter(CheckSpec)


def refusal(**fields: Any) -> list[tuple[str, str]]:
    """Where and why a check is refused."""
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python({"kind": "http", "url": "http://shop.example/", **fields})
    return [(".".join(map(str, error["loc"][1:])), error["msg"]) for error in caught.value.errors()]


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("ftp://shop.example/", "http or https"),
        ("javascript:alert(1)", "http or https"),
        ("shop.example/path", "http or https"),
        ("http://", "8 characters"),
        ("http:///path", "host is missing"),
        ("http://shop.example:0/", "1 to 65535"),
        ("http://shop.example:65536/", "1 to 65535"),
        ("http://shop.example:http/", "1 to 65535"),
        ("http://shop example/", "%20"),
        ("http://shop.example/a b", "%20"),
        ("http://shop.example/\r\nX-Evil: 1", "control characters"),
        ("http://shop.example/\x00", "control characters"),
        ("http://shop.example\\@evil.example/", "backslashes"),
        ("http://127.1/", "four decimal numbers"),
        ("http://2130706433/", "four decimal numbers"),
        ("http://0x7f000001/", "four decimal numbers"),
        ("http://0177.0.0.1/", "four decimal numbers"),
        ("http://0:8080/", "four decimal numbers"),
        ("http://[::1%25eth0]/", "zone"),
        ("http://[::1/", "not a URL"),
        ("http://a..b/", "not a host name"),
        ("http://-a.example/", "not a host name"),
        ("http://a_b☃.example/", "international"),
        (f"http://{'a' * 64}.example/", "not a host name"),
    ],
)
def test_a_url_that_cannot_be_dialled_is_refused_with_its_mend(url: str, word: str) -> None:
    ((field, message),) = refusal(url=url)
    assert field == "url"
    assert word in message


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example",
        "http://shop.example:8080/a%20b?q=ü#part",
        "http://bücher.example/",
        "http://xn--bcher-kva.example/",
        "http://[2001:db8::1]:8080/",
        "http://localhost:1/",
        "http://my_service/",
        "http://shop.example./",
    ],
)
def test_a_url_of_the_web_is_taken(url: str) -> None:
    ADAPTER.validate_python({"kind": "http", "url": url})


def test_user_and_password_move_from_the_url_into_auth() -> None:
    check = HttpCheck.model_validate({"url": "http://u%40d:S3%3d@shop.example:81/?a=1"})
    assert check.url == "http://shop.example:81/?a=1"
    assert check.auth == BasicAuth(username="u@d", password="S3=")
    assert "S3" not in check.url


def test_user_and_password_are_given_once() -> None:
    ((_, message),) = refusal(url="http://u:p@shop.example/", auth={"kind": "bearer", "token": "t"})
    assert "remove them from the URL" in message


@pytest.mark.parametrize(
    "value", ["café", "✓", "a\r\nX-Evil: 1", "a\nb", "\x00", " lead", "trail ", "\ttab", "del\x7f", "a" * 9000]
)
def test_http_09_a_header_value_that_cannot_be_sent_names_its_header(value: str) -> None:
    ((field, message),) = refusal(headers={"X-T": value})
    assert field == "headers"
    assert "'X-T'" in message


@pytest.mark.parametrize(
    "name", ["", "X T", "X:T", "Ümlaut", "X\r\nY", "Content-Length", "transfer-encoding", "Connection", "Expect"]
)
def test_a_header_that_is_not_the_users_to_set_is_refused(name: str) -> None:
    ((field, message),) = refusal(headers={name: "1"})
    assert field == "headers"
    assert "header" in message


def test_headers_that_differ_only_in_case_are_one_header_named_twice() -> None:
    ((_, message),) = refusal(headers={"X-A": "1", "x-a": "2"})
    assert "twice" in message


def test_the_host_header_is_the_users_to_set() -> None:
    HttpCheck.model_validate({"url": "http://127.0.0.1/", "headers": {"Host": "shop.example", "X-Empty": ""}})


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"method": "HEAD", "body": "x"}, "HEAD"),
        ({"method": "HEAD", "assertions": [{"source": "body", "operator": "empty"}]}, "HEAD"),
        ({"method": "TRACE"}, "GET"),
        ({"headers": {"authorization": "x"}, "auth": {"kind": "bearer", "token": "t"}}, "Authorization"),
        ({"auth": {"kind": "basic", "username": "a:b", "password": "p"}}, "':'"),
        ({"auth": {"kind": "basic", "username": "a", "password": "p\n"}}, "control characters"),
        ({"auth": {"kind": "bearer", "token": "Bearer x"}}, "without the word"),
        ({"auth": {"kind": "bearer", "token": "é"}}, "printable ASCII"),
        ({"max_redirects": 21}, "20"),
        ({"follow_redirect": True}, "not permitted"),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any], word: str) -> None:
    ((_, message),) = refusal(**fields)
    assert word in message


@pytest.mark.parametrize("host", ["", "a b", "https://shop.example", "shop.example:443", "127.1", "ü☃"])
def test_a_host_of_an_ssl_check_is_a_host(host: str) -> None:
    with pytest.raises(ValidationError):
        SslCheck.model_validate({"host": host})


def test_a_host_of_an_ssl_check_is_kept_in_its_ascii_form() -> None:
    assert SslCheck.model_validate({"host": "Bücher.Example"}).host == "xn--bcher-kva.example"
    assert SslCheck.model_validate({"host": "[2001:DB8::1]"}).host == "2001:db8::1"


def test_an_ssl_check_asserts_only_what_a_handshake_shows() -> None:
    with pytest.raises(ValidationError, match="kind 'http'"):
        SslCheck.model_validate({"host": "a.example", "assertions": [{"source": "body", "operator": "empty"}]})


@pytest.mark.parametrize(("model", "field"), [(BasicAuth, "password"), (BearerAuth, "token")])
def test_secret_fields_are_marked(model: type, field: str) -> None:
    hints = get_type_hints(model, include_extras=True)
    assert any(isinstance(mark, Secret) for mark in hints[field].__metadata__)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Authorization", True),
        ("Proxy-Authorization", True),
        ("cookie", True),
        ("X-Api-Key", True),
        ("X-AUTH", True),
        ("X-Secret-Thing", True),
        ("X-Vault-Token", True),
        ("X-Password", True),
        ("Accept", False),
        ("X-Probe", False),
    ],
)
def test_headers_that_carry_secrets_are_known_by_name(name: str, expected: bool) -> None:
    assert is_sensitive_header(name) is expected


def test_a_check_survives_storage_unchanged() -> None:
    check = HttpCheck.model_validate(
        {
            "url": "https://u:p@shop.example/",
            "assertions": [{"source": "json", "operator": "eq", "path": "$.a", "value": None}],
        }
    )
    assert ADAPTER.validate_json(check.model_dump_json()) == check
