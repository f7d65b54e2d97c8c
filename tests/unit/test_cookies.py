"""Which cookies a hop of a redirect chain gets to see."""

from __future__ import annotations

import pytest

from shared.domain.url import parse_url
from shared.http.cookies import CookieJar

NOW = 1_800_000_000_000  # 2027-01-15


def sent(
    set_cookie: str, *, by: str = "https://a.shop.example/ui/login", to: str = "https://a.shop.example/ui/"
) -> str:
    jar = CookieJar(NOW)
    jar.store(parse_url(by), set_cookie)
    return jar.header(parse_url(to))


@pytest.mark.parametrize(
    ("set_cookie", "to", "expected"),
    [
        ("s=1; Path=/", "https://a.shop.example/other", "s=1"),
        ("s=1", "https://a.shop.example/ui/x", "s=1"),
        ("s=1", "https://a.shop.example/uix", ""),
        ("s=1", "https://a.shop.example/other", ""),
        ("s=1; Path=/", "https://b.shop.example/", ""),
        ("s=1; Path=/; Domain=shop.example", "https://b.shop.example/", "s=1"),
        ("s=1; Path=/; Domain=.shop.example", "https://shop.example/", "s=1"),
        ("s=1; Path=/; Domain=shop.example", "https://evilshop.example/", ""),
        ("s=1; Path=/; Domain=example", "https://a.shop.example/", ""),
        ("s=1; Path=/; Domain=other.example", "https://a.shop.example/", ""),
        ("s=1; Path=/; Secure", "http://a.shop.example/", ""),
        ("s=1; Path=/; Secure", "https://a.shop.example/", "s=1"),
        ("s=1; Path=/; Max-Age=0", "https://a.shop.example/", ""),
        ("s=1; Path=/; Max-Age=60", "https://a.shop.example/", "s=1"),
        ("s=1; Path=/; Max-Age=soon", "https://a.shop.example/", "s=1"),
        ("s=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "https://a.shop.example/", ""),
        ("s=1; Path=/; Expires=Thu, 01 Jan 2099 00:00:00 GMT", "https://a.shop.example/", "s=1"),
        ("s=1; Path=/; Expires=never", "https://a.shop.example/", "s=1"),
        ("s=a=b; Path=/", "https://a.shop.example/", "s=a=b"),
        ("nothing", "https://a.shop.example/", ""),
        ("=1; Path=/", "https://a.shop.example/", ""),
        ("s=é; Path=/", "https://a.shop.example/", ""),
        ("s=" + "1" * 5000, "https://a.shop.example/ui/", ""),
    ],
)
def test_a_cookie_goes_where_rfc_6265_sends_it(set_cookie: str, to: str, expected: str) -> None:
    assert sent(set_cookie, to=to) == expected


def test_an_address_shares_no_cookies_with_others() -> None:
    assert sent("s=1; Domain=0.0.1", by="http://127.0.0.1/", to="http://127.0.0.1/") == ""


def test_a_later_cookie_replaces_and_deletes_an_earlier_one() -> None:
    jar, url = CookieJar(NOW), parse_url("https://a.shop.example/")
    jar.store(url, "s=1; Path=/")
    jar.store(url, "s=2; Path=/")
    jar.store(url, "t=3; Path=/")
    assert jar.header(url) == "s=2; t=3"
    jar.store(url, "s=; Max-Age=0; Path=/")
    assert jar.header(url) == "t=3"


def test_a_jar_is_bounded() -> None:
    jar, url = CookieJar(NOW), parse_url("https://a.shop.example/")
    for number in range(100):
        jar.store(url, f"c{number}=1")
    assert jar.header(url).count("=") == 50


@pytest.mark.parametrize(
    ("attribute", "kept"),
    [
        ("Expires=Mon, 01 Jan 99999999999999 00:00:00 GMT", True),
        ("Expires=Fri, 31 Dec 9999 23:59:59 -2359", True),
        ("Expires=Mon, 01 Jan 2020 00:00:00 +99999999999", True),
        ("Expires=Mon, 01 Jan 1900 00:00:00 GMT", False),
        ("Expires=" + "1" * 3000, True),
        ("Expires=", True),
        ("Max-Age=" + "9" * 3900, True),
        ("Max-Age=-" + "9" * 3900, False),
    ],
    ids=["year", "end of time", "zone", "past", "digits", "nothing", "long age", "long negative age"],
)
def test_an_end_that_no_calendar_has_is_ignored(attribute: str, kept: bool) -> None:
    assert (sent(f"s=1; Path=/; {attribute}") == "s=1") is kept
