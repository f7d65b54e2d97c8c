"""Channels without a network: signatures, waits that services ask for, secrets, and texts of users' own."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest
from pydantic import ValidationError
from standardwebhooks import Webhook

from shared.channels import pagerduty, slack, webhook
from shared.channels.deliver import deliver, secrets_in
from shared.channels.errors import PermanentError
from shared.channels.record import ChannelKind, Outgoing, Receipt, Tools
from shared.channels.registry import KINDS, configuration
from shared.channels.template import TemplateFailedError, Templates, apply, check
from shared.channels.tools import build_tools
from shared.domain.clock import SystemClock
from shared.domain.mail_server import parse_smtp_url
from shared.domain.notification import (
    Event,
    IncidentFacts,
    MonitorFacts,
    Notification,
    NotificationData,
    words_of,
)
from shared.domain.redaction import hide
from shared.http.guard import AddressPolicy
from shared.services.notifications import SAMPLES, notification_from, stored, target_of

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NEW, OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def notification(event: Event = Event.OPENED, **fields: Any) -> Notification:
    state = {Event.RESOLVED: "resolved", Event.ACKNOWLEDGED: "acknowledged"}.get(event, "open")
    incident = {
        "id": UUID(int=1),
        "kind": "monitor",
        "state": state,
        "severity": "down",
        "cause": "timeout",
        "message": "timed out",
        "started_at": AT,
        "opened_at": AT,
        "resolved_at": AT.replace(hour=7) if state == "resolved" else None,
        **fields,
    }
    monitor = MonitorFacts(UUID(int=2), "Shop", "http", "https://shop.example/", {"team": "shop"})
    return Notification(event, AT, NotificationData(IncidentFacts(**incident), monitor, {"status": "down"}))


def outgoing(event: Event = Event.OPENED) -> Outgoing:
    told = notification(event)
    return Outgoing(UUID(int=7), told, words_of(told))


def test_a_webhook_says_what_the_contract_says() -> None:
    message = webhook.render(webhook.WebhookConfig(url="https://ops.example/"), outgoing())
    body = json.loads(message.body)
    assert body.keys() == {"type", "timestamp", "data"}
    assert (body["type"], body["timestamp"]) == ("incident.opened", "2026-03-04T05:06:07Z")
    assert body["data"].keys() == {"incident", "monitor", "result"}
    assert body["data"]["incident"].items() >= {"state": "open", "cause": "timeout"}.items()
    assert body["data"]["monitor"].items() >= {"name": "Shop", "url": "https://shop.example/"}.items()


def test_while_a_secret_is_replaced_receivers_with_either_one_are_content() -> None:
    clock = SystemClock()
    config = webhook.WebhookConfig(url="https://ops.example/", secret=NEW, previous_secret=OLD)
    message = webhook.render(config, outgoing())
    headers = dict(webhook.signed(message, clock.now_ms() // 1000))
    for secret in (NEW, OLD):
        Webhook(secret).verify(message.body, headers)
    later = dict(webhook.signed(message, clock.now_ms() // 1000 + 1))
    assert later["webhook-id"] == headers["webhook-id"]
    assert later["webhook-signature"] != headers["webhook-signature"]


def test_a_webhook_without_a_secret_is_not_signed_but_has_an_id() -> None:
    message = webhook.render(webhook.WebhookConfig(url="https://u:p%40w@ops.example/"), outgoing())
    headers = dict(webhook.signed(message, 1))
    assert headers == {"webhook-id": f"msg_{UUID(int=7).hex}", "webhook-timestamp": "1"}
    assert message.url == "https://ops.example/"
    assert ("Authorization", "Basic dTpwQHc=") in message.headers


@pytest.mark.parametrize(
    ("event", "action"),
    [
        (Event.OPENED, "trigger"),
        (Event.REMINDER, "trigger"),
        (Event.ACKNOWLEDGED, "acknowledge"),
        (Event.RESOLVED, "resolve"),
    ],
    ids=str,
)
def test_an_incident_is_one_incident_of_pagerduty(event: Event, action: str) -> None:
    config = pagerduty.PagerDutyConfig(routing_key="R" * 32)
    body = json.loads(pagerduty.render(config, outgoing(event)).body)
    assert (body["event_action"], body["dedup_key"]) == (action, str(UUID(int=1)))
    assert ("payload" in body) is (action == "trigger")


VALID: dict[str, dict[str, Any]] = {
    "webhook": {"url": "https://ops.example/SECRETPATH?key=SECRETQUERY", "headers": {"X-Any": "SECRETHEADER"}},
    "email": {
        "to": ["a@b.example"],
        "smtp": {"host": "mail.example", "username": "u", "password": "SECRETPASS", "sender": "a@b.example"},
    },
    "slack": {"url": "https://hooks.slack.com/services/T/B/SECRETPATH"},
    "discord": {"url": "https://discord.com/api/webhooks/1/SECRETPATH"},
    "teams": {"url": "https://x.logic.azure.com/workflows/1?sig=SECRETQUERY"},
    "telegram": {"token": "123:SECRETTOKEN", "chat_id": "@ops"},
    "pagerduty": {"routing_key": "SECRETKEY"},
    "ntfy": {"topic": "SECRETTOPIC", "username": "u", "password": "SECRETPASS"},
    "apprise": {"url": "matrixs://user:SECRETPASS@host.example/#room"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_channel_leads_is_shown_without_its_secrets(kind: str) -> None:
    config = configuration(kind, VALID[kind])
    assert "SECRET" not in KINDS[kind].destination(config)


async def test_code_that_fails_in_a_way_of_its_own_is_a_refusal_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def send(config: slack.SlackConfig, _: object, __: Tools) -> Receipt:
        raise RuntimeError(f"cannot parse {config.url}")

    monkeypatch.setitem(cast("dict[str, ChannelKind]", KINDS), "slack", replace(KINDS["slack"], send=send))
    tools = build_tools(AddressPolicy(), SystemClock())
    with pytest.raises(PermanentError, match="RuntimeError: cannot parse") as refused:
        await deliver("slack", configuration("slack", VALID["slack"]), outgoing(Event.OPENED), tools)
    shown = capsys.readouterr().out
    assert "Traceback" in shown
    assert "SECRETPATH" not in f"{refused.value} {shown}"


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_are_hidden_whole_and_in_parts(kind: str) -> None:
    secrets = secrets_in(configuration(kind, VALID[kind]))
    text = json.dumps(VALID[kind])
    parts = [
        word for word in text.replace('"', " ").replace("/", " ").replace("=", " ").split() if "SECRET" in word
    ]
    assert parts
    for told in (text, *parts):
        assert "SECRET" not in hide(told, secrets)


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        ("webhook", {"url": "ftp://x.example/"}, "url"),
        ("webhook", {"url": "https://x.example/", "secret": "whsec_short"}, "secret"),
        ("webhook", {"url": "https://x.example/", "previous_secret": OLD}, "previous_secret"),
        ("webhook", {"url": "https://x.example/", "headers": {"X": "a\nb"}}, "headers"),
        ("email", {"to": ["nobody"]}, "to"),
        ("email", {"to": []}, "to"),
        ("email", {"to": ["a@b.example\nBcc: c@d.example"]}, "to"),
        ("telegram", {"token": "123:ABCdefGHI/../x", "chat_id": "1"}, "token"),
        ("ntfy", {"topic": "a/b"}, "topic"),
        ("ntfy", {"topic": "a", "username": "u"}, "password"),
        ("slack", {"url": "https://u:p@x.example/"}, "url"),
        ("pagerduty", {"routing_key": "x" * 32, "typo": 1}, "typo"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_work_is_refused_when_it_is_written(kind: str, config: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        configuration(kind, config)


def test_a_password_is_not_sent_in_the_clear() -> None:
    smtp = {"host": "h.example", "security": "none", "username": "u", "password": "p", "sender": "a@b.example"}
    with pytest.raises(ValidationError, match="in the clear"):
        configuration("email", {"to": ["a@b.example"], "smtp": smtp})
    with pytest.raises(ValueError, match="in the clear"):
        parse_smtp_url("smtp+plain://u:p@h.example")
    server = parse_smtp_url("smtps://u%40d:p%3D@mail.example")
    assert (server.port, server.security, server.username, server.password) == (465, "tls", "u@d", "p=")


def test_a_template_says_it_in_words_of_its_users() -> None:
    templates = Templates(
        title="{{ monitor.name | upcase }} {% if incident.severity == 'down' %}is down{% endif %}",
        body="{{ monitor.tags.team }}|{{ monitor.tags.none }}|{{ incident.cause }}|{{ incident.resolved_at }}|"
        "{{ text }}",
    )
    check(templates, SAMPLES)
    words = apply(templates, notification())
    assert words.title == "SHOP is down"
    assert words.lines.startswith("shop||timeout||Monitor: Shop")


@pytest.mark.parametrize(
    "source",
    [
        "{{ monitor.nme }}",
        "{{ nothing }}",
        "{{ title",
        "{% for x in (1..1000000000) %}{% endfor %}",
        "{{ (1..1000000000) | size }}",
        "{% assign x = (1..1000000000) %}",
        "{{ title | replace: 'a', 'aaaaaaaaaa' }}",
        "{% include 'secrets' %}",
        "{{ title.__class__ }}",
        "{% assign a = text %}" + "{% assign a = a | append: a %}" * 30,
    ],
    ids=range(10),
)
def test_a_template_can_neither_loop_nor_grow_nor_reach_out(source: str) -> None:
    with pytest.raises(TemplateFailedError):
        apply(Templates(body=source), notification())


def test_the_title_says_what_happened_first() -> None:
    titles = {event: words_of(notification(event)).title for event in Event if event is not Event.TEST}
    assert titles == {
        Event.OPENED: "DOWN: Shop",
        Event.ACKNOWLEDGED: "ACKNOWLEDGED: Shop",
        Event.RESOLVED: "RESOLVED: Shop",
        Event.REMINDER: "STILL DOWN: Shop",
        Event.PLATFORM_ALERT: "PLATFORM: Shop",
    }
    facts = dict(words_of(notification(Event.RESOLVED)).facts)
    assert facts["Duration"] == "2 h"


def test_a_notification_is_stored_and_read_back_without_a_loss() -> None:
    for told in (Notification(Event.TEST, AT), notification(), notification(Event.RESOLVED)):
        assert notification_from(stored(told)) == told
    assert "\0" not in json.dumps(stored(notification(message="\0 end")))


@pytest.mark.parametrize(
    ("check_spec", "target"),
    [
        ({"kind": "http", "url": "https://u:SECRET@a.example/x?token=SECRET"}, "https://a.example/x?token=***"),
        ({"kind": "tcp", "host": "a.example", "port": 25}, "a.example:25"),
        ({"kind": "ping", "host": "a.example"}, "a.example"),
        ({"kind": "dns", "name": "a.example"}, "a.example"),
        ({"kind": "heartbeat"}, None),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_what_is_checked_is_shown_without_secrets(check_spec: dict[str, Any], target: str | None) -> None:
    assert target_of(check_spec) == target
