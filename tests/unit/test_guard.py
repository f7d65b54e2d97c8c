"""Addresses that must not be dialled, in every disguise."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from shared.http.guard import AddressPolicy

PUBLIC = AddressPolicy()
PRIVATE = AddressPolicy(allow_private=True)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "0.1.2.3",
        "192.0.0.8",
        "198.18.0.1",
        "198.19.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "fe80::1",
        "fe90::1",
        "febf::1",
        "fec0::1",
        "fc00::1",
        "fd00::1",
        "ff02::1",
        "100::1",
        "4000::1",
    ],
)
def test_sec_01_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert PUBLIC.refusal(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "203.0.113.10",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "64:ff9b::101:101",
        "::ffff:1.1.1.1",
        "2002:101:101::1",
    ],
)
def test_sec_01_public_addresses_pass(address: str) -> None:
    assert PUBLIC.refusal(address) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.1.1", "100.64.0.1", "::1", "fd00::1", "::ffff:127.0.0.1"])
def test_private_targets_can_be_allowed(address: str) -> None:
    assert PRIVATE.refusal(address) is None


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "::", "::ffff:169.254.1.1"]
)
def test_allowing_private_targets_never_includes_the_metadata_service(address: str) -> None:
    assert PRIVATE.refusal(address)


def test_a_named_network_is_allowed_and_its_neighbours_are_not() -> None:
    policy = AddressPolicy(allowed_networks=(ip_network("10.1.0.0/16"), ip_network("fd00:1::/32")))
    assert policy.refusal("10.1.2.3") is None
    assert policy.refusal("::ffff:10.1.2.3") is None
    assert policy.refusal("fd00:1::5") is None
    assert policy.refusal("10.2.0.1")
    assert policy.refusal("fd00:2::5")


def test_a_refusal_names_what_is_inside() -> None:
    assert PUBLIC.refusal("64:ff9b::7f00:1") == "64:ff9b::7f00:1 (it carries 127.0.0.1) is not a public address"
