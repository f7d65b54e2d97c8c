"""Addresses: what is dialled, what is sent, and what may be shown."""

from __future__ import annotations

import pytest

from shared.domain.url import parse_url


@pytest.mark.parametrize(
    ("text", "host", "port", "target", "authority"),
    [
        ("http://Shop.Example", "shop.example", 80, "/", "shop.example"),
        ("https://shop.example:443/a", "shop.example", 443, "/a", "shop.example"),
        ("https://shop.example:80/a", "shop.example", 80, "/a", "shop.example:80"),
        ("http://[2001:DB8::1]:81/", "2001:db8::1", 81, "/", "[2001:db8::1]:81"),
        ("http://straße.example/ä?ö=1#x", "xn--strae-oqa.example", 80, "/%C3%A4?%C3%B6=1", "xn--strae-oqa.example"),
        ("http://a.example?x=1", "a.example", 80, "/?x=1", "a.example"),
        ("http://a.example/%2F%zz?a=[1]", "a.example", 80, "/%2F%zz?a=[1]", "a.example"),
        ("http://１２７.0.0.1/", "127.0.0.1", 80, "/", "127.0.0.1"),
    ],
)
def test_a_url_becomes_what_is_dialled_and_sent(
    text: str, host: str, port: int, target: str, authority: str
) -> None:
    url = parse_url(text)
    assert (url.host, url.port, url.target, url.authority) == (host, port, target, authority)
    assert parse_url(str(url)) == url


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/next", "http://a.example/next"),
        ("next?x=1", "http://a.example/dir/next?x=1"),
        ("?y=2", "http://a.example/dir/page?y=2"),
        ("//b.example/", "http://b.example/"),
        ("https://b.example", "https://b.example/"),
        (" /blank in it ", "http://a.example/blank%20in%20it"),
        ("HTTP://B.EXAMPLE:80/", "http://b.example/"),
    ],
)
def test_a_location_is_taken_relative_to_where_it_came_from(location: str, expected: str) -> None:
    assert str(parse_url("http://a.example/dir/page").join(location)) == expected


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("token=S&a=1", "token=***&a=1"),
        ("API_KEY=S", "API_KEY=***"),
        ("sig=S&x=token", "sig=***&x=token"),
        ("%74oken=S", "%74oken=***"),
        ("a=1", "a=1"),
        ("token", "token"),
    ],
)
def test_values_that_sound_secret_are_masked(query: str, shown: str) -> None:
    assert parse_url(f"http://a.example/?{query}").redacted() == f"http://a.example/?{shown}"


def test_the_default_port_spelled_out_is_the_same_origin() -> None:
    assert parse_url("https://a.example").origin == parse_url("https://A.example:443/x").origin
    assert parse_url("https://a.example").origin != parse_url("http://a.example:443/").origin


def test_an_address_sent_by_a_target_is_bounded() -> None:
    here = parse_url("http://a.example/")
    with pytest.raises(ValueError, match="8192"):
        here.join("/" + "a" * 9000)
    before = parse_url.cache_info().currsize
    here.join("/somewhere-else")
    assert parse_url.cache_info().currsize == before
