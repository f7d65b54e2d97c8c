"""What a browser may do with an answer."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import pytest

from tests.integration.api.conftest import Tenant


@pytest.mark.parametrize(
    "path", ["/v1/monitors", "/v1/nothing", "/healthz", "/openapi.json", "/static-offline-docs/swagger-ui.css"]
)
async def test_data_may_not_be_run_framed_or_sniffed(alice: Tenant, path: str) -> None:
    answer = await alice.client.get(path)
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_documentation_may_run_its_own_scripts_only(alice: Tenant, method: str) -> None:
    page = (await alice.client.get("/docs")).text
    answer = await alice.client.request(method, "/docs")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_page_is_whole(alice: Tenant) -> None:
    answer = await alice.client.get("/docs")
    assert answer.status_code == 200
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    assert answer.text.rstrip().endswith("</html>")
