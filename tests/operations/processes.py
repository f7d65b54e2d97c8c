"""What the code says about its processes: settings by command, commands, metrics."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase
from typer.main import get_command

from api.settings import ApiSettings
from cli.main import app
from monitoring_scheduler.settings import SchedulerSettings
from monitoring_worker.settings import WorkerSettings
from shared.observability import metrics
from shared.settings import PREFIX, DatabaseSettings, Settings

# Of ``migrate`` only the database's URL is read.
SETTINGS: dict[str, type[Settings]] = {
    "api": ApiSettings,
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
    "migrate": DatabaseSettings,
}


def variables(command: str) -> set[str]:
    """The environment variables that the process of this command reads."""
    return {f"{PREFIX}{name.upper()}" for name in SETTINGS[command].model_fields}


def commands() -> set[str]:
    """Every command of ``tocsin``."""
    return set(getattr(get_command(app), "commands"))  # noqa: B009 typed as a command without sub-commands


def metric_names() -> set[str]:
    """Every series that the product exports, as a query names it."""
    names: set[str] = set()
    for metric in _metrics():
        (family,) = metric.describe()
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {f"{family.name}{suffix}" for suffix in suffixes}
    return names


def metric_labels() -> set[str]:
    """Every label of them."""
    return {label for metric in _metrics() for label in metric._labelnames}


def _metrics() -> list[MetricWrapperBase]:
    return [metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)]
