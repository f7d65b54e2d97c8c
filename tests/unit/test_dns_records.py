"""Records in the one form in which they are compared, and names as they are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.dns_records import RecordKind, normalise_record, query_name


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        ("AAAA", "2001:DB8:0:0::1", "2001:db8::1"),
        ("A", " 192.0.2.1 ", "192.0.2.1"),
        ("CNAME", "Www.Example.", "www.example"),
        ("MX", "10  Mail.Example.", "10 mail.example"),
        ("MX", "0 .", "0 ."),
        ("SRV", "010 5 5060 sip.example.", "10 5 5060 SIP.example"),
        ("SOA", "ns.example. a.example. 1 2 3 4 5", "NS.example A.example 1 2 3 4 5"),
        ("CAA", "0 ISSUE ca.example", '0 issue "ca.example"'),
    ],
)
def test_the_same_record_has_one_form(kind: RecordKind, left: str, right: str) -> None:
    assert normalise_record(kind, left) == normalise_record(kind, right)


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [("TXT", "v=spf1 A", "v=spf1 a"), ("MX", "10 a.example", "20 a.example"), ("CAA", "0 issue a", "0 issue A")],
)
def test_what_differs_stays_different(kind: RecordKind, left: str, right: str) -> None:
    assert normalise_record(kind, left) != normalise_record(kind, right)


@pytest.mark.parametrize(
    ("kind", "text", "mend"),
    [
        ("A", "2001:db8::1", "IPv4"),
        ("AAAA", "192.0.2.1", "IPv6"),
        ("MX", "mail.example", "'10 mail.example.org'"),
        ("CNAME", "a b", "www.example.org"),
        ("CAA", "letsencrypt.org", "issue"),
    ],
)
def test_a_value_of_another_form_names_the_form(kind: RecordKind, text: str, mend: str) -> None:
    with pytest.raises(ValueError, match=mend):
        normalise_record(kind, text)


@pytest.mark.parametrize(
    ("kind", "name", "asked"),
    [
        ("A", "Shop.Example", "shop.example."),
        ("A", "shop.example.", "shop.example."),
        ("A", "bücher.example", "xn--bcher-kva.example."),
        ("TXT", "_dmarc.example", "_dmarc.example."),
        ("A", "*.example", "*.example."),
        ("NS", ".", "."),
        ("PTR", "192.0.2.1", "1.2.0.192.in-addr.arpa."),
        ("PTR", "1.2.0.192.in-addr.arpa", "1.2.0.192.in-addr.arpa."),
    ],
)
def test_names_are_asked_for_absolutely(kind: RecordKind, name: str, asked: str) -> None:
    assert query_name(kind, name) == asked


@pytest.mark.parametrize("name", ["a..b", "a b", "a" * 64, "a\\b", "a/b", "a\nb", "\x00", ".."])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        query_name("A", name)


@given(st.sampled_from(["A", "MX", "CAA", "TXT", "SOA", "PTR"]), st.text(max_size=40))
def test_no_text_breaks_the_comparison(kind: RecordKind, text: str) -> None:
    for use in (normalise_record, query_name):
        try:
            use(kind, text)
        except ValueError:
            pass
