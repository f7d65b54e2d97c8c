"""``tocsin check`` on the kinds below HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.rrset
import pytest

from cli.check_target import fields_of
from cli.errors import UsageError
from tests.integration.test_check_command import run


@pytest.fixture
def mail() -> Iterator[int]:
    """A port that greets like a mail server."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"220 \x1b[31mmail\r\n")

    thread = threading.Thread(target=work)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


@pytest.fixture
def names() -> Iterator[int]:
    """A name server that knows two mail servers for every name."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def work() -> None:
        while (packet := server.recvfrom(4096))[0] != b"stop":
            response = dns.message.make_response(dns.message.from_wire(packet[0]))
            name = response.question[0].name
            response.answer.append(dns.rrset.from_text(name, 60, "IN", "MX", "10 a.example.", "20 b.example."))
            server.sendto(response.to_wire(), packet[1])

    thread = threading.Thread(target=work)
    thread.start()
    port = server.getsockname()[1]
    yield port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stopper:
        stopper.sendto(b"stop", ("127.0.0.1", port))
    thread.join(5)
    server.close()


def test_a_tcp_target_shows_its_banner_without_terminal_codes(mail: int) -> None:
    code, output = run(f"tcp://127.0.0.1:{mail}?expect=%5E220")
    assert code == 0, output
    assert f"UP  tcp://127.0.0.1:{mail}" in output
    assert "banner 220" in output
    assert "\x1b" not in output
    code, output = run(f"tcp://127.0.0.1:{mail}?expect=%5ESSH")
    assert code == 1
    assert "banner_mismatch" in output


def test_a_dns_target_shows_its_records(names: int) -> None:
    code, output = run(f"dns://shop.example?type=mx&resolver=127.0.0.1:{names}&expected=10+a.example")
    assert code == 0, output
    for word in ("record 10 a.example.", "record 20 b.example.", "NOERROR over UDP TTL 60 s", f"127.0.0.1:{names}"):
        assert word in output
    code, output = run(f"dns://shop.example?type=MX&resolver=127.0.0.1:{names}&expected=10+a.example&match=equals")
    assert code == 1
    assert "record_mismatch" in output


def test_a_ping_target_says_what_came_back_or_what_to_grant() -> None:
    code, output = run("ping://127.0.0.1?count=1")
    assert ("1 of 1 echoes answered" in output) if code == 0 else ("ping_group_range" in output)


def test_a_closed_port_is_down_for_every_kind() -> None:
    code, output = run("tcp://127.0.0.1:1", "ssl://127.0.0.1:1?starttls=smtp")
    assert code == 1
    assert output.count("connect_refused") == 2


def test_a_file_holds_every_kind(mail: int, names: int, tmp_path: Path) -> None:
    file = tmp_path / "monitors.yaml"
    file.write_text(
        f"- {{kind: tcp, host: 127.0.0.1, port: {mail}, expect: '^220'}}\n"
        f"- name: Mail of the shop\n"
        f"  check: {{kind: dns, name: shop.example, record: MX, resolver: 127.0.0.1, port: {names}}}\n"
    )
    code, output = run("-f", str(file))
    assert code == 0, output
    assert f"UP  tcp://127.0.0.1:{mail}" in output
    assert "UP  Mail of the shop" in output
    code, output = run("-f", str(file), "--json")
    assert [each["status"] for each in json.loads(output)] == ["up", "up"]
    assert json.loads(output)[1]["dns"]["count"] == 2


@pytest.mark.parametrize(
    ("target", "mend"),
    [
        ("tcp://127.0.0.1", "port"),
        ("tcp://127.0.0.1:x", "port must be a number"),
        ("tcp://127.0.0.1:22?exspect=a", "use expect, send, server_name, tls"),
        ("tcp://127.0.0.1:22?tls=perhaps", "tls is yes or no"),
        ("tcp://127.0.0.1:22/path", "options go behind"),
        ("dns://shop.example?type=ANY", "record"),
        ("dns://shop.example?resolver=127.0.0.1:x", "port must be a number"),
        ("ping://127.0.0.1:80", "an echo has no port"),
        ("ping://127.0.0.1?count=x", "count"),
        ("ping://127.0.0.1?count=11&interval_ms=1000", "raise it, or lower count"),
        ("ssl://127.0.0.1?starttls=gopher", "starttls"),
        ("tcp://[::1", "IPv6"),
    ],
)
def test_unusable_targets_name_their_mend(target: str, mend: str) -> None:
    with pytest.raises(UsageError, match=mend):
        run(target)


def test_options_of_the_command_line_reach_the_kinds_they_mean() -> None:
    shared = {"tls": {"verify": False}, "ip_family": "6"}
    assert fields_of("ssl://a.example", shared) == {"kind": "ssl", "host": "a.example", **shared}
    assert fields_of("tcp://a.example:1", shared) == {
        "kind": "tcp",
        "host": "a.example",
        "port": 1,
        "ip_family": "6",
    }
    assert (fields_of("tcp://a.example:1?tls=yes", shared) or {})["tls"] == {"verify": False}
    assert fields_of("ping://[::1]", shared) == {"kind": "ping", "host": "[::1]", "ip_family": "6"}
    assert fields_of("ping://a.example?count=5&down_loss_percent=12.5&interval_ms=x", {}) == {
        "kind": "ping",
        "host": "a.example",
        "count": 5,
        "down_loss_percent": 12.5,
        "interval_ms": "x",
    }
    assert fields_of("https://a.example", shared) is None
