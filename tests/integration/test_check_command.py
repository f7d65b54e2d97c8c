"""``tocsin check`` as a person meets it: exit codes, what is printed, and what is refused."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.check import check
from cli.errors import UsageError

app = typer.Typer()
app.command()(check)


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"depth": 250, "text": "\\u001b[31mready"}')

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100", **environment})
    if isinstance(result.exception, UsageError):
        raise result.exception
    return result.exit_code, result.stdout


def test_up_is_zero_and_shows_where_the_time_went(page: str) -> None:
    code, output = run(page, "--contains", "ready")
    assert code == 0, output
    for word in (
        "UP",
        page,
        "200",
        "connect",
        "first byte",
        "total",
        "✓ status in 200-299",
        "✓ body contains ready",
    ):
        assert word in output
    assert "\x1b" not in output


def test_down_is_one_and_says_why(page: str) -> None:
    code, output = run(page, "--status", "204", "http://127.0.0.1:1/")
    assert code == 1
    assert "status_code status is 200, expected one of 204" in output
    assert "connect_refused" in output
    assert "2 down" in output


def test_json_is_one_object_for_one_target_and_a_list_for_several(page: str) -> None:
    code, output = run(page, "--json")
    assert code == 0
    result = json.loads(output)
    assert result["status"] == "up"
    assert result["http"]["status_code"] == 200
    assert result["monitor_id"] is None
    code, output = run(page, "http://127.0.0.1:1/", "--json")
    assert code == 1
    assert [each["status"] for each in json.loads(output)] == ["up", "down"]


def test_a_file_holds_monitors_and_bare_checks(page: str, tmp_path: Path) -> None:
    file = tmp_path / "monitors.yaml"
    depth = "{source: json, path: $.depth, operator: lt, value: 100, severity: degraded}"
    file.write_text(
        f"monitors:\n- name: Shop\n  check: {{kind: http, url: '{page}', assertions: [{depth}]}}\n- url: '{page}'\n"
    )
    code, output = run("-f", str(file))
    assert code == 0, output
    assert "DEGRADED  Shop" in output
    assert "✗ json $.depth lt 100 is 250" in output
    assert "1 up, 1 degraded" in output


def test_what_a_target_sends_never_reaches_the_terminal_as_a_command(page: str, tmp_path: Path) -> None:
    file = tmp_path / "monitor.yaml"
    file.write_text(f"{{url: '{page}', assertions: [{{source: json, path: $.text, operator: eq, value: ready}}]}}")
    _, output = run("-f", str(file))
    assert "[31mready" in output
    assert "\x1b" not in output


def test_an_ssl_target_is_a_handshake(page: str) -> None:
    code, output = run(page.replace("http://", "ssl://"))
    assert code == 1
    assert "tls_handshake" in output


def test_colours_are_used_when_wanted_and_not_otherwise(page: str) -> None:
    assert "\x1b[" in run(page, FORCE_COLOR="1")[1]
    assert "\x1b[3" not in run(page, FORCE_COLOR="1", NO_COLOR="1")[1]


def test_a_narrow_terminal_is_not_overrun(page: str) -> None:
    _, output = run(page, "--contains", "ready", COLUMNS="50")
    assert max(map(len, output.splitlines())) <= 50


def test_in_a_pipe_a_line_stays_whole(page: str) -> None:
    command = (sys.executable, "-m", "cli.main", "check", page, "--contains", "x" * 200)
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "FORCE_COLOR"}}
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert f'keyword_missing the body does not contain "{"x" * 20}' in ended.stdout
    [found] = [line for line in ended.stdout.splitlines() if "keyword_missing" in line]
    assert len(found) > 100, ended.stdout
    assert not any(line.endswith(" ") for line in ended.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        ((), "name a target"),
        (("example.org",), "write https://example.org"),
        (("ftp://example.org",), "none of https, http, ssl, tcp, dns and ping"),
        (("http://a b/",), "%20"),
        (("ssl://h:x",), "port must be a number"),
        (("http://h/", "-H", "x"), "Name: value"),
        (("http://h/", "--timeout", "0"), "greater than 0"),
        (("http://h/", "--status", "2x"), "200-299"),
        (("http://h/", "--ca-file", "/nope"), "no such file"),
        (("-f", "/nope.yaml"), "cannot be read: No such file"),
    ],
)
def test_unusable_input_names_its_mend(arguments: tuple[str, ...], mend: str) -> None:
    with pytest.raises(UsageError, match=mend):
        run(*arguments)


@pytest.mark.parametrize(
    ("content", "mend"),
    [
        ("[", "not YAML"),
        ("[]", "no monitor"),
        ("check: {kind: heartbeat, period_seconds: 60}", "no monitor in it that can be checked"),
        ("- 5", "mapping"),
        ("check: {kind: http, url: 'http://h/', methd: GET}", "methd: there is no such field"),
        ("- {url: 'http://h/'}\n- {url: 'ftp://h/'}", "monitor 2: url: the scheme"),
    ],
)
def test_an_unusable_file_names_the_monitor_and_the_field(content: str, mend: str, tmp_path: Path) -> None:
    file = tmp_path / "monitors.yaml"
    file.write_text(content)
    with pytest.raises(UsageError, match=mend):
        run("-f", str(file))
