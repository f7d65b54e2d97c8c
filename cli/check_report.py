"""How the result of a check looks on a terminal: a verdict, where the time went, and what was found."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.check_lines import days_left, duration, line, network_lines, visible
from shared.domain.result import AssertionOutcome, CheckVerdict, ResultStatus, StepResult, TlsFacts

_STATUS = {
    ResultStatus.UP: ("✔", "UP", "bold green"),
    ResultStatus.DEGRADED: ("▲", "DEGRADED", "bold yellow"),
    ResultStatus.DOWN: ("✘", "DOWN", "bold red"),
    ResultStatus.MISSED: ("?", "NOT JUDGED", "bold magenta"),
}
# A glyph each, so that the bar can be read without colours too.
_PHASES = (
    ("dns", "dns", "▪", "cyan"),
    ("connect", "connect", "▒", "blue"),
    ("tls", "tls", "▓", "magenta"),
    ("first_byte", "first byte", "█", "yellow"),
    ("transfer", "transfer", "░", "green"),
)
_MAX_BAR = 72
INDENT = 2


class Printer:
    """Prints reports as they come; colours and width are those of the terminal, NO_COLOR is respected."""

    def __init__(self) -> None:
        # In a pipe or a file a line stays whole, so that it can be searched for.
        is_piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=is_piped)

    def show(self, target: str, verdict: CheckVerdict) -> None:
        self._console.print(report(target, verdict, self._console.width))

    def sum_up(self, verdicts: list[CheckVerdict]) -> None:
        """One line, where there were several."""
        if len(verdicts) > 1:
            self._console.print(summary(verdicts))


def report(target: str, verdict: CheckVerdict, width: int) -> RenderableType:
    """The lines for one target; nothing that came from a target is taken for markup or terminal codes."""
    lines = _redirects(verdict)
    if verdict.error:
        lines.append(line((verdict.error.kind.value, _STATUS[verdict.status][2]), (verdict.error.message, "")))
    if verdict.timings_ms.total:
        lines += [_bar(verdict, min(width - INDENT, _MAX_BAR)), _legend(verdict)]
    if verdict.tls:
        lines.append(_certificate(verdict.tls))
    lines += network_lines(verdict)
    if verdict.steps:  # the other assertions are those of the step that decided
        lines += [each for step in verdict.steps for each in _step(step)]
    else:
        lines += [_assertion(outcome) for outcome in verdict.assertions]
    return Group(_headline(target, verdict), *[_indented(each) for each in lines], Text())


def summary(verdicts: list[CheckVerdict]) -> Text:
    """One line over several targets."""
    text = Text()
    for status, (_, word, style) in _STATUS.items():
        if count := sum(verdict.status is status for verdict in verdicts):
            text.append(", " if text else "").append(f"{count} {word.lower()}", style)
    return text


def _headline(target: str, verdict: CheckVerdict) -> Text:
    mark, word, style = _STATUS[verdict.status]
    text = Text().append(f"{mark} {word}", style).append(f"  {visible(target)}", "bold")
    for fact in _facts(verdict):
        text.append(" · ", "dim").append(visible(fact))
    return text


def _facts(verdict: CheckVerdict) -> list[str]:
    facts: list[str] = []
    if verdict.http and verdict.http.status_code:
        facts += [str(verdict.http.status_code), f"HTTP/{verdict.http.version}", _size(verdict.http.body_bytes)]
    seen = verdict.http or verdict.tcp or verdict.tls
    if seen and seen.remote_address:
        facts.append(seen.remote_address)
    if verdict.dns and verdict.dns.server:
        facts.append(verdict.dns.server)
    if verdict.ping and verdict.ping.address:
        facts.append(verdict.ping.address)
    if verdict.attempts > 1:
        facts.append(f"{verdict.attempts} attempts")
    return facts


def _redirects(verdict: CheckVerdict) -> list[Text]:
    hops = verdict.http.redirects if verdict.http else ()
    return [line((f"↳ {hop.status_code}", "dim"), (hop.url, "")) for hop in hops]


def _bar(verdict: CheckVerdict, width: int) -> Text:
    spent = [(getattr(verdict.timings_ms, field), glyph, style) for field, _, glyph, style in _PHASES]
    total = sum(milliseconds for milliseconds, _, _ in spent) or 1.0
    text = Text()
    for milliseconds, glyph, style in spent:
        if milliseconds:
            text.append(glyph * max(1, round(width * milliseconds / total)), style)
    text.truncate(width)
    return text


def _legend(verdict: CheckVerdict) -> Text:
    text = Text()
    for field, name, glyph, style in _PHASES:
        if milliseconds := getattr(verdict.timings_ms, field):
            text.append(f"{glyph} {name} ", style).append(f"{duration(milliseconds)}  ")
    return text.append("total ", "dim").append(duration(verdict.timings_ms.total), "bold")


def _certificate(tls: TlsFacts) -> Text:
    certificate = tls.certificate
    if certificate is None:
        return line(("certificate", "dim"), ("none was shown", ""))
    left, style = days_left(certificate)
    parts = [
        ("certificate", "dim"),
        (certificate.subject or ", ".join(certificate.sans[:2]) or "without a name", ""),
        ("by", "dim"),
        (certificate.issuer or "an unnamed issuer", ""),
        ("·", "dim"),
        (left, style),
    ]
    if tls.version:
        parts += [("·", "dim"), (tls.version, "")]
    return line(*parts)


def _step(step: StepResult) -> list[Text]:
    if step.skipped or step.status is None:
        return [line(("·", "dim"), (step.name, ""), ("skipped", "dim"))]
    mark, _, style = _STATUS[step.status]
    status = str(step.http.status_code) if step.http and step.http.status_code else "no answer"
    took = duration(step.timings_ms.total)
    lines = [line((mark, style), (step.name, "bold"), (status, "dim"), ("·", "dim"), (took, "dim"))]
    if step.error:
        lines.append(_indented(line((step.error.kind.value, style), (step.error.message, ""))))
    lines += [_indented(_assertion(outcome)) for outcome in step.assertions]
    return lines + [_indented(line((f"{name} =", "dim"), (value, ""))) for name, value in step.extracted.items()]


def _indented(text: Text) -> Text:
    return Text(" " * INDENT).append_text(text)


def _assertion(outcome: AssertionOutcome) -> Text:
    mark, style = ("✓", "green") if outcome.passed else ("✗", "yellow" if outcome.severity == "degraded" else "red")
    what = " ".join(part for part in (outcome.source, outcome.path, outcome.operator) if part)
    expected = "" if outcome.expected is None else f" {_value(outcome.expected)}"
    return line((mark, style), (f"{what}{expected}", ""), (_actual(outcome), "dim"))


def _actual(outcome: AssertionOutcome) -> str:
    if not outcome.passed and outcome.message is None:
        return "was not reached"
    if outcome.passed and outcome.source == "body":
        return ""  # the whole page is no news
    return f"is {_value(outcome.actual)}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


def _size(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB"
