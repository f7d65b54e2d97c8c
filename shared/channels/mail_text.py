"""A notification as a mail: plain text and HTML, from the same words."""

from __future__ import annotations

import html
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final
from uuid import UUID

from shared.channels.record import Outgoing
from shared.channels.style import colour
from shared.domain.notification import one_line, shortened

SUBJECT_LIMIT: Final = 200
_POLICY = SMTP.clone(max_line_length=998, cte_type="7bit")
_PAGE = """\
<!doctype html>
<html><head><meta charset="utf-8"></head>
<body style="margin:0;padding:24px;font-family:Helvetica,Arial,sans-serif;color:#1d2939">
<div style="border-left:4px solid #{colour:06x};padding-left:16px">
<h1 style="font-size:18px;margin:0 0 16px">{title}</h1>
{content}
</div></body></html>
"""
_ROW = (
    '<tr><th align="left" valign="top" style="padding:2px 16px 2px 0;font-weight:600">{name}</th>'
    '<td style="padding:2px 0;white-space:pre-wrap">{value}</td></tr>'
)


def compose(sender: str, to: list[str], outgoing: Outgoing) -> EmailMessage:
    """The message. Its Message-ID is the notification's own, so a second copy can be told from another mail."""
    domain = sender.rpartition("@")[2]
    words, incident = outgoing.words, outgoing.notification.data.incident
    mail = EmailMessage(_POLICY)
    mail["From"] = Address("Tocsin", addr_spec=sender)
    mail["To"] = ", ".join(to)
    mail["Subject"] = shortened(one_line(words.title), SUBJECT_LIMIT)
    mail["Date"] = format_datetime(outgoing.notification.timestamp)
    mail["Message-ID"] = _id(outgoing.id, domain)
    mail["Auto-Submitted"] = "auto-generated"
    if incident is not None:
        mail["References"] = _id(incident.id, domain)  # one thread per incident
    mail.set_content(words.text + "\n", cte="quoted-printable")
    mail.add_alternative(_html(outgoing), subtype="html", cte="quoted-printable")
    return mail


def _id(value: UUID, domain: str) -> str:
    return f"<{value}@{domain}>"


def _html(outgoing: Outgoing) -> str:
    """Nothing of a target or a user is anything but text here: no links, no tags, no attributes."""
    words = outgoing.words
    if words.body is not None:
        content = f'<div style="white-space:pre-wrap">{html.escape(words.body)}</div>'
    else:
        rows = (_ROW.format(name=html.escape(name), value=html.escape(value)) for name, value in words.facts)
        content = f"<table>{''.join(rows)}</table>"
    return _PAGE.format(colour=colour(outgoing.notification), title=html.escape(words.title), content=content)
