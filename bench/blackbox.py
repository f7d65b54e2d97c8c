"""Debian's prometheus-blackbox-exporter as a peer: its own process, its own CPU, the same target and conditions."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from shared.testing.nats import free_port

PROGRAM = shutil.which("prometheus-blackbox-exporter") or shutil.which("blackbox_exporter")
CONFIG = """
modules:
  ready:
    prober: http
    timeout: 30s
    http:
      preferred_ip_protocol: ip4
      fail_if_body_not_matches_regexp: ["ready"]
      tls_config: {{ca_file: "{ca_file}"}}
"""
TICKS = os.sysconf("SC_CLK_TCK")


class Blackbox:
    """A running exporter."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self._process, self._address = process, address

    def cpu_ms(self) -> float:
        """User and system time it has used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / TICKS

    async def probe(self, client: httpx.AsyncClient, url: str) -> None:
        answer = await client.get(f"{self._address}/probe", params={"module": "ready", "target": url})
        assert "probe_success 1" in answer.text, answer.text


@contextlib.contextmanager
def blackbox(ca_file: Path) -> Iterator[Blackbox | None]:
    """The exporter if it is installed, else None."""
    if PROGRAM is None:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as config:
        config.write(CONFIG.format(ca_file=ca_file))
        config.flush()
        port = free_port()
        command = [PROGRAM, f"--config.file={config.name}", f"--web.listen-address=127.0.0.1:{port}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                wait_until_it_answers(f"http://127.0.0.1:{port}")
                yield Blackbox(process, f"http://127.0.0.1:{port}")
            finally:
                process.terminate()


def wait_until_it_answers(address: str) -> None:
    for _ in range(100):
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{address}/-/healthy", trust_env=False)
            return
        time.sleep(0.1)
    raise SystemExit("the blackbox exporter did not start")
