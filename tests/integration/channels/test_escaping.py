"""Whatever monitors and targets are called, what arrives reads the same (NOTIF-02).

Each sink is as strict as its service: it parses, refuses what is not escaped, and decodes as the service shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from shared.channels.deliver import deliver
from shared.channels.record import Receipt
from shared.channels.registry import configuration
from shared.channels.tools import build_tools
from shared.domain.clock import SystemClock
from shared.domain.notification import Event
from shared.http.guard import AddressPolicy
from tests.integration.channels.conftest import NAME, SHOWN, outgoing
from tests.integration.channels.sinks import Answer, Arrival, HttpSink

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # Apprise asks for it
REFUSED = Answer(400, body=b'{"ok":false,"description":"Bad Request: can\'t parse entities"}')


def unescape_slack(text: str) -> str:
    """Raises ``ValueError`` where Slack would see markup."""
    if re.search(r"[<>]|&(?!amp;|lt;|gt;)", text):
        raise ValueError("not escaped")
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def unescape_discord(text: str) -> str:
    """Raises ``ValueError`` where Discord would see markup."""
    if re.search(r"[*_~`|>#\[\]()<@\\]", re.sub(r"\\[^A-Za-z0-9\s]", "", text)):
        raise ValueError("not escaped")
    return re.sub(r"\\([^A-Za-z0-9\s])", r"\1", text)


class _TelegramHtml(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "b" or attrs:
            raise ValueError(f"unsupported start tag {tag!r}")

    def handle_endtag(self, tag: str) -> None:
        if tag != "b":
            raise ValueError(f"unexpected end tag {tag!r}")

    def handle_data(self, data: str) -> None:
        self.text += data


def telegram_text(body: dict[str, Any]) -> str:
    if body.get("parse_mode") != "HTML":
        return str(body["text"])
    if re.search(r"<(?!/?b>)", body["text"]):
        raise ValueError("can't parse entities")
    parser = _TelegramHtml()
    parser.feed(body["text"])
    parser.close()
    return parser.text


def slack_text(body: dict[str, Any]) -> str:
    (attachment,) = body["attachments"]
    texts = [block["text"] for block in attachment["blocks"] if "text" in block]
    texts += [text for block in attachment["blocks"] for text in block.get("fields", ())]
    assert {text["type"] for text in texts} == {"plain_text"}
    assert body["mrkdwn"] is False
    return "\n".join(unescape_slack(text) for text in [body["text"], *(each["text"] for each in texts)])


def discord_text(body: dict[str, Any]) -> str:
    assert body["allowed_mentions"] == {"parse": []}
    (embed,) = body["embeds"]
    values = [embed["title"], *(field["value"] for field in embed["fields"])]
    assert len("".join(values)) < 6000
    return "\n".join(map(unescape_discord, values))


def teams_text(body: dict[str, Any]) -> str:
    (attachment,) = body["attachments"]
    blocks = attachment["content"]["body"]
    assert {block["type"] for block in blocks} == {"RichTextBlock"}  # a TextBlock would read Markdown
    return "\n".join("".join(run["text"] for run in block["inlines"]) for block in blocks)


def pagerduty_text(body: dict[str, Any]) -> str:
    return "\n".join([body["payload"]["summary"], *body["payload"]["custom_details"].values()])


def ntfy_text(body: dict[str, Any]) -> str:
    return f"{body['title']}\n{body['message']}"


def webhook_text(body: dict[str, Any]) -> str:
    return f"{body['data']['monitor']['name']}\n{body['data']['incident']['message']}".replace("\0", "\ufffd")


def apprise_text(body: dict[str, Any]) -> str:
    return f"{body['title']}\n{body['message']}"


KINDS: dict[str, tuple[Callable[[str], dict[str, Any]], Callable[[Any], str]]] = {
    "webhook": (lambda url: {"url": f"{url}/hook"}, webhook_text),
    "slack": (lambda url: {"url": f"{url}/services/T/B/X"}, slack_text),
    "discord": (lambda url: {"url": f"{url}/api/webhooks/1/x"}, discord_text),
    "teams": (lambda url: {"url": f"{url}/workflows/x"}, teams_text),
    "telegram": (lambda url: {"token": "123:ABCdefGHI", "chat_id": -5, "base_url": url}, telegram_text),
    "pagerduty": (lambda url: {"routing_key": "R" * 32, "base_url": url}, pagerduty_text),
    "ntfy": (lambda url: {"topic": "alerts", "token": "tk_secret", "base_url": url}, ntfy_text),
    "apprise": (lambda url: {"url": url.replace("http", "json", 1)}, apprise_text),
}


async def send(kind: str, config: dict[str, Any], **fields: Any) -> Receipt:
    tools = build_tools(AddressPolicy(allow_private=True), SystemClock(), allow_apprise=True)
    return await deliver(kind, configuration(kind, config), outgoing(**fields), tools)


@pytest.mark.parametrize("kind", KINDS)
async def test_awkward_text_arrives_as_it_is(kind: str, sink: HttpSink) -> None:
    config, text_of = KINDS[kind]

    def judge(arrival: Arrival) -> Answer:
        try:
            text_of(json.loads(arrival.body))
        except ValueError as error:
            return Answer(400, body=str(error).encode())
        return Answer()

    sink.judge = judge
    await send(kind, config(sink.url))
    assert [arrival.answered for arrival in sink.arrivals] == [200]
    text = text_of(sink.arrivals[0].json)
    assert NAME in text
    assert SHOWN in text


@pytest.mark.parametrize("markup", ["html", "markdown"])
async def test_text_stays_text_where_a_service_of_apprise_reads_markup(markup: str, sink: HttpSink) -> None:
    await send("apprise", {"url": f"{sink.url.replace('http', 'json', 1)}/?format={markup}"}, message="<b>*x*</b>")
    (arrival,) = sink.arrivals
    shown = {"html": "&lt;b&gt;*x*&lt;/b&gt;", "markdown": "\\*x\\*"}[markup]
    assert shown in arrival.json["message"]
    assert "<b>" not in arrival.json["message"]


async def test_what_telegram_cannot_parse_is_sent_once_more_as_plain_text(sink: HttpSink) -> None:
    config, text_of = KINDS["telegram"]
    sink.judge = lambda arrival: REFUSED if "parse_mode" in arrival.json else Answer()
    await send("telegram", config(sink.url))
    assert [arrival.answered for arrival in sink.arrivals] == [400, 200]
    assert text_of(sink.arrivals[1].json).count(NAME) == 2  # title and fact


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", [Event.OPENED, Event.RESOLVED], ids=lambda event: str(event.value))
async def test_long_text_is_cut_to_what_the_service_takes(kind: str, event: Event, sink: HttpSink) -> None:
    config, _ = KINDS[kind]
    await send(kind, config(sink.url), event=event, name="<&*_" * 500, message="&<>*\\" * 20_000)
    (arrival,) = sink.arrivals
    body = arrival.json
    match kind:
        case "slack":
            assert len(body["text"]) <= 3000
            blocks = body["attachments"][0]["blocks"]
            assert all(len(block["text"]["text"]) <= 3000 for block in blocks if "text" in block)
            slack_text(body)
        case "discord":
            discord_text(body)
            assert all(len(field["value"]) <= 1024 for field in body["embeds"][0]["fields"])
        case "telegram":
            assert len(telegram_text(body)) <= 4096
        case "ntfy":
            assert len(body["message"].encode()) <= 4096
        case "pagerduty":
            assert len(body.get("payload", {"summary": ""})["summary"]) <= 1024
        case "teams":
            assert len(arrival.body) <= 28_000
