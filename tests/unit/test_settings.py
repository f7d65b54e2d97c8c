"""A wrong value stops the process with one line that names the variable and the mend."""

from __future__ import annotations

import pytest

from monitoring_scheduler.settings import SchedulerSettings
from monitoring_worker.settings import WorkerSettings
from shared.settings import ChannelSettings, ConfigurationError, load

GOOD = {"TOCSIN_DATABASE_URL": "postgresql://u:p@localhost/t", "TOCSIN_SECRET_KEYS": "k" * 32}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)


def test_lists_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_NATS_URL", "nats://a:4222, nats://b:4222")
    monkeypatch.setenv("TOCSIN_ALLOWED_NETWORKS", "10.0.0.0/8,fd00::/8")
    monkeypatch.setenv("TOCSIN_SECRET_KEYS", f"{'a' * 32},{'b' * 40}")
    monkeypatch.setenv("TOCSIN_NATS_REPLICAS", "3")
    settings = load(WorkerSettings)
    assert settings.nats_replicas == 3
    assert settings.nats_url == ["nats://a:4222", "nats://b:4222"]
    assert [str(network) for network in settings.allowed_networks] == ["10.0.0.0/8", "fd00::/8"]
    assert [len(key.get_secret_value()) for key in settings.secret_keys] == [32, 40]


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("TOCSIN_NATS_URL", "http://nats", "nats:// or tls://"),
        ("TOCSIN_DATABASE_URL", "mysql://db", "starts with postgresql://"),
        ("TOCSIN_SECRET_KEYS", "short", "at least 32 characters"),
        ("TOCSIN_REGION", "EU West", "a region is"),
        ("TOCSIN_METRICS_PORT", "70000", "less than or equal to 65535"),
        ("TOCSIN_ALLOWED_NETWORKS", "10.0.0.0/33", "TOCSIN_ALLOWED_NETWORKS"),
        ("TOCSIN_LOG_FORMAT", "xml", "json"),
        ("TOCSIN_NATS_REPLICAS", "2", "1, 3 or 5"),
        ("TOCSIN_WORKER_CONCURRENCY", "many", "integer"),
    ],
)
def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load(WorkerSettings)
    assert caught.value.variable == variable
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_secret_is_not_repeated_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "mysql://user:hunter2@db")
    with pytest.raises(ConfigurationError) as caught:
        load(WorkerSettings)
    assert "hunter2" not in str(caught.value)


def test_a_missing_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOCSIN_DATABASE_URL")
    with pytest.raises(ConfigurationError, match="TOCSIN_DATABASE_URL: is not set"):
        load(WorkerSettings)


def test_a_scheduler_needs_neither_database_nor_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in GOOD:
        monkeypatch.delenv(name)
    assert load(SchedulerSettings).metrics_port == 9100


def test_a_mail_server_that_cannot_be_used_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_SMTP_URL", "smtp+plain://u:hunter2@mail.example")
    with pytest.raises(ConfigurationError, match="in the clear") as refused:
        load(ChannelSettings)
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("TOCSIN_SMTP_URL", "mail.example:25")
    with pytest.raises(ConfigurationError, match="TOCSIN_SMTP_URL: write the mail server as"):
        load(ChannelSettings)
