"""Lines of a report: how text, time and the facts of the kinds below HTTP are written."""

from __future__ import annotations

from rich.text import Text

from shared.domain.result import (
    AddressFacts,
    CertificateFacts,
    CheckVerdict,
    DnsFacts,
    PingFacts,
    ResultStatus,
    TcpFacts,
)

MAX_RECORDS = 10
_MARKS = {ResultStatus.UP: ("✓", "green"), ResultStatus.DEGRADED: ("▲", "yellow")}


def network_lines(verdict: CheckVerdict) -> list[Text]:
    """What was found below HTTP, one line each."""
    lines: list[Text] = []
    if verdict.tls:
        lines += [_address(each) for each in verdict.tls.addresses]
    if verdict.tcp:
        lines += _banner(verdict.tcp)
    if verdict.dns:
        lines += _records(verdict.dns)
    if verdict.ping and verdict.ping.sent:
        lines.append(_echoes(verdict.ping))
    return lines


def _address(facts: AddressFacts) -> Text:
    parts = [_MARKS.get(facts.status, ("✗", "red")), (facts.address, "")]
    if facts.fingerprint_sha256:
        parts.append(days_left(facts))
    if facts.error:
        parts.append((facts.error.message, ""))
    return line(*parts)


def _banner(tcp: TcpFacts) -> list[Text]:
    return [line(("banner", "dim"), (tcp.banner, ""))] if tcp.banner else []


def _records(dns: DnsFacts) -> list[Text]:
    lines = [line(("record", "dim"), (record, "")) for record in dns.records[:MAX_RECORDS]]
    if dns.count > MAX_RECORDS:
        lines.append(line((f"and {dns.count - MAX_RECORDS} more", "dim")))
    if dns.rcode:
        told = f"{dns.rcode} over {(dns.transport or '').upper()}"
        lines.append(line((told, "dim"), *([(f"TTL {dns.ttl_seconds} s", "dim")] if dns.records else [])))
    return lines


def _echoes(ping: PingFacts) -> Text:
    parts = [(f"{ping.received} of {ping.sent} echoes answered", "yellow" if ping.loss_percent else "green")]
    if ping.rtt_min is not None and ping.rtt_average is not None and ping.rtt_max is not None:
        times = " / ".join(duration(time) for time in (ping.rtt_min, ping.rtt_average, ping.rtt_max))
        parts += [("min / mean / max", "dim"), (times, "")]
    return line(*parts)


def days_left(certificate: CertificateFacts | AddressFacts) -> tuple[str, str]:
    """The time a certificate has left, and the colour for it."""
    days = certificate.days_left
    if days is None:
        return "end unknown", "yellow"
    if days < 0:
        return "expired", "red"
    return f"{days} day{'' if days == 1 else 's'} left", "yellow" if days <= 30 else "green"


def line(*parts: tuple[str, str]) -> Text:
    """Texts with their styles, a blank between them."""
    text = Text()
    for content, style in parts:
        text.append(" " if text else "").append(visible(content), style)
    return text


def visible(text: str) -> str:
    """Text without anything a terminal would obey."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


def duration(milliseconds: float) -> str:
    """Milliseconds as people read them."""
    if milliseconds >= 10_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.1f} ms"
