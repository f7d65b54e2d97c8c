"""What a certificate changes in comparison with the one before, and of which kind each change is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from shared.domain.certificate import certificate_changes, certificate_facts, certificate_news
from shared.domain.errors import MESSAGE_LIMIT
from shared.domain.result import CertificateFacts
from tests.unit.test_tls_rules import NOW_MS, der


def test_a_renewal_with_the_same_key_is_no_change() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    before, after = (certificate_facts(der(key=key, ends=ends), (), NOW_MS) for ends in (5, 90))
    assert before.fingerprint_sha256 != after.fingerprint_sha256
    assert certificate_changes(before, after) == ()


def test_changes_are_named_one_by_one() -> None:
    before = certificate_facts(der(issuer="one", sans=("a.example", "b.example")), (), NOW_MS)
    after = certificate_facts(der(issuer="two", sans=("a.example", "c.example")), (), NOW_MS)
    assert [(change.kind.value, change.message) for change in certificate_changes(before, after)] == [
        ("issuer", "the issuer changed from CN=one to CN=two"),
        ("key", "the key changed"),
        ("names", "names were added: c.example"),
        ("names", "names are gone: b.example"),
    ]


MANY = tuple(f"{number}.example" for number in range(150))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (("a.example", "b.example"), ("b.example", "a.example"), []),
        (MANY, MANY[::-1], []),
        (MANY, MANY[:-1], ["names changed, among 100 or more"]),
        (MANY[:99], MANY[:97], ["names are gone: 97.example, 98.example"]),
        (
            MANY[:1],
            MANY[:8],
            ["names were added: 1.example, 2.example, 3.example, 4.example, 5.example and 2 more"],
        ),
        (("a.example",), (), ["names are gone: a.example"]),
        ((), ("a.example",), ["names were added: a.example"]),
        ((), (), []),
    ],
    ids=["order", "order of many", "one of many", "two of less", "more than are told", "all", "the first", "none"],
)
def test_names_change_as_a_set(before: tuple[str, ...], after: tuple[str, ...], told: list[str]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    facts = [certificate_facts(der(key=key, sans=sans), (), NOW_MS) for sans in (before, after)]
    assert [change.message for change in certificate_changes(*facts)] == told
    # What an older worker saw has no hash: then the lists are all there is.
    facts[0] = replace(facts[0], names_sha256=None)
    if before and len(before) < 100:
        assert [change.message for change in certificate_changes(*facts)] == told


def test_what_was_not_seen_did_not_change_and_what_is_hidden_did() -> None:
    unread = certificate_facts(b"no certificate", (), NOW_MS)
    seen = certificate_facts(der(sans=("a.example",)), (), NOW_MS)
    assert certificate_changes(unread, seen) == certificate_changes(unread, unread) == ()
    assert [(change.kind.value, change.message) for change in certificate_changes(seen, unread)] == [
        ("issuer", "the issuer changed from CN=issuer to one that cannot be read"),
        ("key", "the key cannot be read"),
        ("names", "names are gone: a.example"),
    ]


def test_a_long_issuer_leaves_room_for_the_other_changes() -> None:
    before, after = (certificate_facts(der(issuer=letter * 64), (), NOW_MS) for letter in "xy")
    before, after = replace(before, issuer="x" * 300), replace(after, issuer="y" * 300)
    told = "; ".join(change.message for change in certificate_changes(before, after))
    assert told.endswith("; the key changed")
    assert len(told) < MESSAGE_LIMIT


KEY = ec.generate_private_key(ec.SECP256R1())
OWN = certificate_facts(der(key=KEY), (), NOW_MS)
OTHER_ISSUER = certificate_facts(der(key=KEY, issuer="two"), (), NOW_MS)
OTHER_KEY = certificate_facts(der(), (), NOW_MS)
OTHER_NAMES = certificate_facts(der(key=KEY, sans=("b.example",)), (), NOW_MS)
UNREADABLE = certificate_facts(b"no certificate", (), NOW_MS)


@pytest.mark.parametrize(
    ("accepted", "shown", "kinds"),
    [
        ([], OWN, []),
        ([OWN], OTHER_NAMES, ["names", "names"]),
        ([OWN], OTHER_KEY, ["key"]),
        ([OTHER_ISSUER, OWN], OTHER_KEY, ["key"]),
        ([OTHER_KEY, OTHER_ISSUER], OWN, []),
        ([OTHER_NAMES, OWN], OTHER_ISSUER, ["issuer"]),
        ([UNREADABLE, OWN], OTHER_ISSUER, ["issuer"]),
        ([UNREADABLE], OTHER_ISSUER, []),
        ([replace(OWN, issuer="")], OTHER_KEY, ["issuer", "key"]),
        ([OWN, OTHER_KEY], UNREADABLE, ["issuer", "key", "names"]),
    ],
    ids=[
        "the first",
        "names",
        "key",
        "the issuer of an older one",
        "a mixture of older ones",
        "names of an older one",
        "behind one that cannot be read",
        "after nothing that can be read",
        "after an empty name",
        "one that cannot be read",
    ],
)
def test_news_is_what_no_accepted_certificate_had(
    accepted: list[CertificateFacts], shown: CertificateFacts, kinds: list[str]
) -> None:
    assert [change.kind.value for change in certificate_news(accepted, shown)] == kinds
