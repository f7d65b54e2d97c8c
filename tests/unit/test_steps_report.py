"""Checks of several requests on the command line: read from a file, shown step by step."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from cli.check_input import Options, jobs_of
from cli.check_report import report
from shared.domain.checks import HttpStepsCheck
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.result import AssertionOutcome, CheckVerdict, HttpFacts, ResultStatus, StepResult, Timings

FILE = """
name: An order
check:
  kind: http_steps
  steps: [{name: one, url: "https://shop.example/"}]
  cleanup: {name: clean, url: "https://shop.example/"}
"""
FAILED = AssertionOutcome("status", "eq", 201, 500, passed=False, message="status is 500, expected 201")
VERDICT = CheckVerdict(
    ResultStatus.DOWN,
    error=CheckError(ErrorKind.STATUS_CODE, "step 'order': status is 500, expected 201"),
    timings_ms=Timings(first_byte=20.0, total=20.0),
    assertions=(FAILED,),
    steps=(
        StepResult(
            "log in",
            ResultStatus.UP,
            timings_ms=Timings(total=12.0),
            http=HttpFacts(201, "1.1"),
            attempts=1,
            extracted={"token": "***"},
        ),
        StepResult(
            "order\x1b[2J",
            ResultStatus.DOWN,
            error=CheckError(ErrorKind.STATUS_CODE, "status is 500, expected 201"),
            timings_ms=Timings(total=8.0),
            http=HttpFacts(500, "1.1"),
            assertions=(FAILED,),
            attempts=1,
        ),
        StepResult("look", skipped=True),
        StepResult("delete", ResultStatus.DOWN, error=CheckError(ErrorKind.CONFIG_ERROR, "no value"), attempts=1),
    ),
)


def test_every_step_has_its_lines() -> None:
    written = io.StringIO()
    console = Console(file=written, width=80, highlight=False, markup=False, emoji=False)
    console.print(report("An order", VERDICT, 80))
    lines = [line.strip() for line in written.getvalue().splitlines()]
    assert lines[lines.index("✔ log in 201 · 12.0 ms") :] == [
        "✔ log in 201 · 12.0 ms",
        "token = ***",
        "✘ order\ufffd[2J 500 · 8.0 ms",
        "status_code status is 500, expected 201",
        "✗ status eq 201 is 500",
        "· look skipped",
        "✘ delete no answer · 0.0 ms",
        "config_error no value",
        "",
    ]


def test_no_verify_holds_for_all_steps(tmp_path: Path) -> None:
    place = tmp_path / "order.yaml"
    place.write_text(FILE)
    http = dict.fromkeys(("method", "headers", "body", "status", "contains"))
    (job,) = jobs_of([], place, Options(http, None, None, no_verify=True, no_redirects=False, ip=None))
    assert job.name == "An order"
    assert isinstance(job.check, HttpStepsCheck)
    assert [step.tls.verify for step in job.check.every_step] == [False, False]
