"""Apprise brings its own HTTP client: what the guard looks at before, and what it is not allowed to do at all."""

from __future__ import annotations

import pytest

from shared.channels.deliver import deliver
from shared.channels.errors import PermanentError
from shared.channels.registry import configuration
from shared.channels.tools import build_tools
from shared.domain.clock import SystemClock
from shared.http.guard import AddressPolicy
from tests.integration.channels.conftest import outgoing
from tests.integration.channels.sinks import HttpSink

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # Apprise asks for it


async def send(url: str, *, allow_private: bool) -> None:
    tools = build_tools(AddressPolicy(allow_private=allow_private), SystemClock(), allow_apprise=True)
    await deliver("apprise", configuration("apprise", {"url": url}), outgoing(), tools)


@pytest.mark.parametrize(
    "form",
    ["json://127.0.0.1:{port}/", "form://localhost:{port}/",
     "ntfy://127.0.0.1:{port}/t"],
    ids=["address", "name", "of a service"],
)  # fmt: skip
async def test_sec_01_a_private_host_is_never_dialled(form: str, sink: HttpSink) -> None:
    with pytest.raises(PermanentError, match="blocked"):
        await send(form.format(port=sink.port), allow_private=False)
    assert sink.arrivals == []


TOKENS = {
    "discord": "discord://1234567890/abcdefghijklmnop/?template={file}",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template={file}",
    "telegram": "tgram://123456789:abcdefghijklmnopqrstuvwxyz012345678/12315544/?template={file}",
    "workflows": "workflows://127.0.0.1:{port}/643e7a4b9a7e4b6d8a5c/643e7a4b9a7e4b6d8a5c643e7a4b9a7e4b6d8a5c?template={file}",
    "firebase": "fcm://project/device/?keyfile={file}",
    "vapid": "vapid://ann@shop.example/bob@shop.example/?KeyFile={file}",
    "mail": "mailto://user:pass@127.0.0.1:{port}/?to=ann@shop.example&pgppub={file}",
}


@pytest.mark.parametrize(
    "file", ["http%3A%2F%2F127.0.0.1%3A{port}%2Finside", "/etc/hostname"], ids=["address", "file"]
)
@pytest.mark.parametrize("service", TOKENS)
async def test_nothing_beside_the_service_itself_is_read(service: str, file: str, sink: HttpSink) -> None:
    url = TOKENS[service].format(file=file.format(port=sink.port), port=sink.port)
    with pytest.raises(PermanentError, match="what lies elsewhere is not read"):
        await send(url, allow_private=True)
    assert sink.arrivals == []


@pytest.mark.parametrize("url", ["syslog://", "DBUS://", "gnome://"])
async def test_a_service_of_the_workers_own_machine_is_refused(url: str) -> None:
    with pytest.raises(PermanentError, match="own machine"):
        await send(f"{url}localhost", allow_private=True)
