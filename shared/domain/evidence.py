"""What a result keeps of an answer that was not as it should be: little, readable, and without secrets."""

from __future__ import annotations

from shared.domain.comparison import well_formed
from shared.domain.observation import HttpObservation, decode_text
from shared.domain.redaction import CUT, hide, redact_headers, scrub
from shared.domain.result import AddressTried, Evidence

BODY_CHARACTERS = 1024
HEADERS_CHARACTERS = 4096
_HEADER_CHARACTERS = 300
_READ_BYTES = 4096
"""More than is shown, so that a secret which the end of the excerpt cuts in two is still recognised."""


def http_evidence(seen: HttpObservation, secrets: tuple[str, ...]) -> Evidence:
    """The last answer, redacted; empty as far as none came."""
    addresses = tuple(AddressTried(*each) for each in seen.addresses)
    return Evidence(addresses=addresses, headers=_headers(seen, secrets), body=_body(seen, secrets))


def _headers(seen: HttpObservation, secrets: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    shown: list[tuple[str, str]] = []
    left = HEADERS_CHARACTERS
    for name, value in redact_headers(seen.headers):
        field = well_formed(name[:_HEADER_CHARACTERS]), _cut(well_formed(hide(value, secrets)), _HEADER_CHARACTERS)
        left -= len(field[0]) + len(field[1])
        if left < 0:
            break
        shown.append(field)
    return tuple(shown)


def _body(seen: HttpObservation, secrets: tuple[str, ...]) -> str | None:
    body = seen.body or seen.excerpt
    if not body:
        return None
    text = decode_text(body[:_READ_BYTES], seen.header("content-type"))
    # With the mark of a cut the beginning of a secret at the very end is masked, too.
    text = hide(scrub(text + CUT if len(body) > _READ_BYTES else text), secrets)
    return _cut(well_formed(text), BODY_CHARACTERS)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + CUT
