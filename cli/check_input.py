"""What ``tocsin check`` is asked to check: addresses from the command line, monitors from a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import TypeAdapter, ValidationError

from cli.check_target import fields_of
from cli.errors import UsageError
from shared.domain.checks import AnyCheck, CheckKind, CheckSpec, HeartbeatCheck, HttpCheck, HttpStepsCheck
from shared.domain.monitor import MonitorSpec, RunOptions, refuse_unfit_timeout
from shared.services.errors import reason_of

_SPEC: TypeAdapter[AnyCheck] = TypeAdapter(CheckSpec)
_KINDS = frozenset(get_args(CheckKind))


@dataclass(frozen=True, slots=True)
class Job:
    """One check to run, and what to call it."""

    name: str
    check: AnyCheck
    options: RunOptions


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; null is one that was not given. ``http`` says nothing about ssl checks."""

    http: dict[str, Any]
    timeout: float | None
    retries: int | None
    no_verify: bool
    no_redirects: bool
    ip: str | None

    def fields(self) -> dict[str, Any]:
        """Fields of an http check."""
        given = {name: self.http[name] for name in ("method", "body") if self.http[name] is not None}
        if self.http["headers"]:
            given["headers"] = dict(_header(line) for line in self.http["headers"])
        assertions = []
        if self.http["status"]:
            assertions.append({"source": "status", "operator": "in", "value": self.http["status"]})
        if self.http["contains"]:
            assertions.append({"source": "body", "operator": "contains", "value": self.http["contains"]})
        if self.ip:
            given["ip_family"] = self.ip
        if self.no_verify:
            given["tls"] = {"verify": False}
        return {**given, "assertions": assertions, "follow_redirects": not self.no_redirects}

    def run_options(self, given: RunOptions | None = None) -> RunOptions:
        """How to run: what the command line says wins over what a file says."""
        fields = given.model_dump() if given else {}
        fields |= {} if self.timeout is None else {"timeout_seconds": self.timeout}
        fields |= {} if self.retries is None else {"retries": self.retries}
        try:
            return RunOptions.model_validate(fields)
        except ValidationError as error:
            raise UsageError(_first_fault(error)) from None


def jobs_of(targets: list[str], file: Path | None, options: Options) -> list[Job]:
    """All checks that are asked for; raises ``UsageError``."""
    jobs = [from_target(target, options.fields(), options.run_options()) for target in targets]
    if file:
        jobs += [_overridden(job, options) for job in from_file(file)]
    if not jobs:
        raise UsageError("name a target, as in: tocsin check https://example.org")
    return jobs


def _overridden(job: Job, options: Options) -> Job:
    check = _unverified(job.check) if options.no_verify else job.check
    return Job(job.name, check, options.run_options(job.options))


def _unverified(part: Any) -> Any:
    """A check, or a step of one, that takes any certificate."""
    if isinstance(part, HttpStepsCheck):
        steps, cleanup = [_unverified(step) for step in part.steps], part.cleanup and _unverified(part.cleanup)
        return part.model_copy(update={"steps": steps, "cleanup": cleanup})
    tls = getattr(part, "tls", None)
    return part if tls is None else part.model_copy(update={"tls": tls.model_copy(update={"verify": False})})


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon:
        raise UsageError(f"-H {line[:40]!r}: write it as 'Name: value'")
    return name.strip(), value.strip()


def from_target(target: str, fields: dict[str, Any], options: RunOptions) -> Job:
    """A check of an http, https, ssl, tcp, dns or ping address; all ``fields`` are those of an http check."""
    if target.startswith(("http://", "https://")):
        return Job(target, _valid_check({"kind": "http", "url": target, **fields}, target), options)
    network = fields_of(target, {name: fields[name] for name in ("tls", "ip_family") if name in fields})
    if network is None:
        scheme, separator, _ = target.partition("://")
        if separator:
            raise UsageError(f"{target}: {scheme}:// is none of https, http, ssl, tcp, dns and ping")
        raise UsageError(f"{target}: write https://{target} to ask for a page, or ssl://{target}:443")
    check = _valid_check(network, target)
    try:
        refuse_unfit_timeout(check, options.timeout_seconds)
    except ValueError as error:
        raise UsageError(f"{target}: {error}") from None
    return Job(target, check, options)


def from_file(path: Path) -> list[Job]:
    """The monitors of a file: one mapping, a list, or a list under ``monitors``; bare checks will do too."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from None
    if isinstance(document, dict) and "monitors" in document:
        document = document["monitors"]
    entries = document if isinstance(document, list) else [document]
    jobs = [_entry(entry, f"{path}: monitor {number}") for number, entry in enumerate(entries, 1)]
    # A file of all monitors may hold some that report by themselves: there is nothing to run.
    runnable = [job for job in jobs if not isinstance(job.check, HeartbeatCheck)]
    if not runnable:
        raise UsageError(f"{path}: there is no monitor in it that can be checked")
    return runnable


def _entry(entry: Any, where: str) -> Job:
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: write a mapping with 'name' and 'check'")
    if "check" not in entry:
        check = _valid_check({"kind": "http", **entry} if "url" in entry else entry, where)
        return Job(_name(check), check, RunOptions())
    try:
        monitor = MonitorSpec.model_validate({"name": where, **entry})
    except ValidationError as error:
        raise UsageError(f"{where}: {_first_fault(error)}") from None
    options = RunOptions.model_validate({name: getattr(monitor, name) for name in RunOptions.model_fields})
    return Job(entry.get("name") or _name(monitor.check), monitor.check, options)


def _name(check: AnyCheck) -> str:
    return check.url if isinstance(check, HttpCheck) else check.target


def _valid_check(fields: dict[str, Any], where: str) -> AnyCheck:
    try:
        return _SPEC.validate_python(fields)
    except ValidationError as error:
        raise UsageError(f"{where}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in fault["loc"] if part not in _KINDS)
    reason = reason_of(fault)
    return f"{field}: {reason}" if field else reason
