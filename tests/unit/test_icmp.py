"""Echo packets as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.http.icmp import checksum_of, echo_request, reply_sequence

TOKEN = b"0123456789abcdef"


def reply(version: int, sequence: int = 7, token: bytes = TOKEN) -> bytes:
    request = echo_request(version, 0x1234, sequence, token)
    return bytes([0 if version == 4 else 129]) + request[1:]


def test_the_checksum_is_that_of_the_rfc() -> None:
    assert checksum_of(bytes.fromhex("0001f203f4f5f6f7")) == 0x220D
    assert checksum_of(echo_request(4, 0x1234, 7, TOKEN)) == 0


@pytest.mark.parametrize("version", [4, 6])
def test_a_reply_is_known_by_its_token(version: int) -> None:
    assert reply_sequence(version, reply(version), TOKEN) == 7
    assert reply_sequence(version, reply(version, token=b"x" * 16), TOKEN) is None
    assert reply_sequence(version, echo_request(version, 0x1234, 7, TOKEN), TOKEN) is None


def test_raw_sockets_see_the_ip_header() -> None:
    assert reply_sequence(4, bytes([0x46]) + bytes(23) + reply(4), TOKEN) == 7


@given(st.sampled_from([4, 6]), st.binary(max_size=80))
def test_no_packet_breaks_the_reader(version: int, packet: bytes) -> None:
    reply_sequence(version, packet, TOKEN)
