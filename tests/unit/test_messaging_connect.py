from __future__ import annotations

import pytest

from shared.messaging.connect import _split, describe, redact


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://host:4222", "nats://host:4222"),
        ("host", "host"),
        ("nats://ada:secret@host:4222", "nats://ada:***@host:4222"),
        ("nats://token@host", "nats://***@host"),
        ("tls://ada:p@ss@[::1]:4222", "tls://ada:***@[::1]:4222"),
    ],
)
def test_a_url_is_shown_without_its_secret(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("urls", "servers", "credentials"),
    [
        (["nats://a:1", "b:2"], ["nats://a:1", "nats://b:2"], (None, None, None)),
        (["nats://u:p%40@a:1", "nats://b:2"], ["nats://a:1", "nats://b:2"], ("u", "p@", None)),
        (["nats://a:1", "tls://t%2Fk@b:2"], ["nats://a:1", "tls://b:2"], (None, None, "t/k")),
    ],
    ids=["none", "user and password", "token of a later address"],
)
def test_credentials_are_taken_out_of_the_addresses(
    urls: list[str], servers: list[str], credentials: tuple[str | None, ...]
) -> None:
    found_servers, found = _split(urls)
    assert found_servers == servers
    assert (found.user, found.password, found.token) == credentials


@pytest.mark.parametrize("urls", [[], ["nats://"], ["nats://:4222"]])
def test_an_address_without_a_host_is_refused(urls: list[str]) -> None:
    with pytest.raises(ValueError, match="address"):
        _split(urls)


def test_an_error_without_text_is_still_described() -> None:
    assert describe(TimeoutError()) == "TimeoutError"
    assert describe(OSError("gone")) == "OSError: gone"
    assert describe(None) == "unknown"
