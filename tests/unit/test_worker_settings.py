"""A worker needs the database to record, and only then."""

from __future__ import annotations

import pytest

from monitoring_worker.settings import WorkerSettings
from shared.settings import ConfigurationError, load


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_SECRET_KEYS", "k" * 32)
    monkeypatch.delenv("TOCSIN_DATABASE_URL", raising=False)
    monkeypatch.delenv("TOCSIN_RECORDER", raising=False)


def test_without_the_recorder_there_is_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_RECORDER", "false")
    assert load(WorkerSettings).database_url.get_secret_value() == ""


@pytest.mark.parametrize("recorder", [None, "true"], ids=["by default", "said"])
def test_with_the_recorder_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, recorder: str | None) -> None:
    if recorder:
        monkeypatch.setenv("TOCSIN_RECORDER", recorder)
    with pytest.raises(ConfigurationError, match="TOCSIN_DATABASE_URL: is not set"):
        load(WorkerSettings)


@pytest.mark.parametrize("recorder", ["true", "false"])
def test_a_wrong_url_is_refused_either_way(monkeypatch: pytest.MonkeyPatch, recorder: str) -> None:
    monkeypatch.setenv("TOCSIN_RECORDER", recorder)
    monkeypatch.setenv("TOCSIN_DATABASE_URL", "mysql://database")
    with pytest.raises(ConfigurationError, match="starts with postgresql"):
        load(WorkerSettings)
