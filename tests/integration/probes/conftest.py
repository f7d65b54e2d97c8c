"""A runner that may check loopback, and certificates from an authority that exists for one test run."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from monitoring_worker.probes.runner import CheckRunner
from shared.domain.checks import HttpCheck, SslCheck
from shared.domain.result import CheckVerdict
from shared.http.guard import AddressPolicy

HERE = AddressPolicy(allow_private=True)
TIMEOUT = 30.0
# What needs no waiting takes less on the slowest machine, and a check that waits for its deadline takes more.
AT_ONCE = 10.0


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Workers run on uvloop, the command line and the tests of others on asyncio's own loop."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


class Authority:
    """A root and an intermediate; servers send the leaf and the intermediate."""

    def __init__(self, folder: Path) -> None:
        self.root = trustme.CA()
        self.intermediate = self.root.create_child_ca()
        self.ca_file = folder / "root.pem"
        self.root.cert_pem.write_to_path(str(self.ca_file))
        self._folder = folder

    def leaf(self, *names: str, starts: float = -1, ends: float = 90) -> trustme.LeafCert:
        """A certificate that is valid from and until so many days from now."""
        now = datetime.now(UTC)
        return self.intermediate.issue_cert(
            *(names or ("127.0.0.1", "localhost")),
            not_before=now + timedelta(days=starts),
            not_after=now + timedelta(days=ends),
        )

    def context(self, leaf: trustme.LeafCert | None = None, *, leaf_only: bool = False) -> ssl.SSLContext:
        """A server's context."""
        leaf = leaf or self.leaf()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if leaf_only:
            chain = self._folder / f"leaf-{id(leaf)}.pem"
            chain.write_bytes(leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes())
            context.load_cert_chain(chain)
        else:
            leaf.configure_cert(context)
        return context


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def runner(authority: Authority) -> CheckRunner:
    return CheckRunner(HERE, ca_file=authority.ca_file)


async def check(runner: CheckRunner, url: str, *, timeout: float = TIMEOUT, **fields: Any) -> CheckVerdict:
    """Run an http check once."""
    return await runner.run(HttpCheck.model_validate({"url": url, **fields}), timeout_seconds=timeout)


async def check_tls(runner: CheckRunner, port: int, *, timeout: float = TIMEOUT, **fields: Any) -> CheckVerdict:
    """Run an ssl check once."""
    spec = SslCheck.model_validate({"host": "127.0.0.1", "port": port, **fields})
    return await runner.run(spec, timeout_seconds=timeout)


def body_contains(text: str) -> list[dict[str, Any]]:
    return [{"source": "body", "operator": "contains", "value": text}]
