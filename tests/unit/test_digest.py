"""Digest authentication against the examples of RFC 7616, and challenges as servers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.http.digest import DigestSession, find_challenge, parse_challenges
from shared.http.errors import TargetError

COMMON = (
    'Digest realm="http-auth@example.org", qop="auth, auth-int", '
    'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
)
RFC_7616 = (f"{COMMON}, algorithm=SHA-256", f"{COMMON}, algorithm=MD5")
CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"


@pytest.mark.parametrize(
    ("fields", "response"),
    [
        (RFC_7616[1:], "8ca523f5e9506fed4657c9700eebdbec"),
        (RFC_7616[:1], "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        (RFC_7616, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_examples_of_rfc_7616(fields: tuple[str, ...], response: str) -> None:
    session = DigestSession(find_challenge(fields), "Mufasa", "Circle of Life")
    session._cnonce = CNONCE
    sent = session.authorization("GET", "/dir/index.html")
    assert f'response="{response}"' in sent
    assert "qop=auth, nc=00000001" in sent
    assert 'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"' in sent
    assert "nc=00000002" in session.authorization("GET", "/dir/index.html")


def test_a_user_name_beyond_ascii_is_sent_in_its_extended_form() -> None:
    sent = DigestSession(find_challenge(['Digest realm="r", nonce="n"']), "Jäsøn Doe", "p").authorization(
        "GET", "/"
    )
    assert "username*=UTF-8''J%C3%A4s%C3%B8n%20Doe" in sent
    assert sent.isascii()


def test_quotes_in_what_is_sent_back_are_escaped() -> None:
    challenge = find_challenge([r'Digest realm="a \"b\" \\", nonce="n"'])
    assert challenge.realm == 'a "b" \\'
    assert r'realm="a \"b\" \\"' in DigestSession(challenge, 'u"', "p").authorization("GET", "/")


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("", []),
        ("Basic", [("Basic", {})]),
        ("Negotiate YIIabc==", [("Negotiate", {})]),
        ('Basic realm="a, b=c"', [("Basic", {"realm": "a, b=c"})]),
        ("Digest nonce=n ,realm = r", [("Digest", {"nonce": "n", "realm": "r"})]),
        ('NTLM, Basic realm="x"', [("NTLM", {}), ("Basic", {"realm": "x"})]),
        ("realm=orphan", [("realm", {})]),
    ],
)
def test_challenges_are_taken_apart(field: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    found = [challenge for challenge in parse_challenges([field]) if challenge[0] != "realm"]
    assert found == [challenge for challenge in expected if challenge[0] != "realm"]


@given(st.lists(st.text(alphabet="Digest realmnonce=\",\\ qopauth'\x00é", max_size=300), max_size=12))
def test_no_challenge_breaks_us(fields: list[str]) -> None:
    try:
        challenge = find_challenge(f"Digest {field}" for field in fields)
    except TargetError:
        return  # unsupported, which is an answer too
    assert DigestSession(challenge, "u", "p").authorization("GET", "/").isascii()
