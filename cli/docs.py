"""``python -m cli.docs``: writes the tables of the documentation; with ``--check`` it only compares."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cli import docs_settings
from shared.domain.assertions import OPERATORS, Assertion, Operator
from shared.domain.auth import BasicAuth, BearerAuth, ClientCertificate, DigestAuth, OAuth2Auth
from shared.domain.checks_http import FormBody, HttpCheck, HttpRequest, HttpTls, JsonBody
from shared.domain.checks_steps import Extraction, HttpStep, HttpStepsCheck
from shared.domain.errors import ErrorKind
from shared.domain.monitor import MonitorSpec
from shared.domain.route import Proxy
from shared.domain.spec import Secret

_DOCS = Path(__file__).parent.parent / "docs"
PAGE = _DOCS / "checks.md"
PAGES = (PAGE, *(_DOCS / name for name in ("checks-steps.md", "configuration.md", "monitors.md")))
_PLACE = re.compile(r"(<!-- table: ([a-z0-9_ ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

MEANINGS = {
    ErrorKind.DNS_NXDOMAIN: "The name does not exist.",
    ErrorKind.DNS_NO_DATA: "The name exists, and has no address of this family, or no record of this kind.",
    ErrorKind.DNS_FAILURE: "The name service answered with a failure, or with something that cannot be used.",
    ErrorKind.DNS_TIMEOUT: "The name service did not answer in time.",
    ErrorKind.CONNECT_REFUSED: "Nobody listens on the port, or a proxy will not connect.",
    ErrorKind.CONNECT_TIMEOUT: "The connection was not made in time.",
    ErrorKind.CONNECT_UNREACHABLE: "The network has no way to the address.",
    ErrorKind.CONNECTION_RESET: "The connection was reset, which is not the same as closed.",
    ErrorKind.TLS_EXPIRED: "A certificate that is needed has ended; the message says when.",
    ErrorKind.TLS_NOT_YET_VALID: "A certificate that is needed begins later; the message says when.",
    ErrorKind.TLS_SELF_SIGNED: "The certificate is signed by nobody but itself.",
    ErrorKind.TLS_UNTRUSTED: "The certificate leads to a root that is not trusted.",
    ErrorKind.TLS_CHAIN_INCOMPLETE: "The server sent no intermediate. Browsers may hide that; other clients fail.",
    ErrorKind.TLS_HOSTNAME_MISMATCH: "The certificate is for another name.",
    ErrorKind.TLS_WEAK: "The protocol, a key or a signature is too weak.",
    ErrorKind.TLS_CHANGED: "The certificate is not like the one before, in a way that was to be reported.",
    ErrorKind.TLS_CLIENT_CERT_REQUIRED: "The server demands a client certificate.",
    ErrorKind.TLS_HANDSHAKE: "The handshake failed for another reason, which the message names.",
    ErrorKind.TIMEOUT: "The time of the attempt was over; the message names the phase.",
    ErrorKind.EMPTY_REPLY: "The server closed the connection without an answer.",
    ErrorKind.INCOMPLETE_BODY: "The answer breaks off before the end it announced.",
    ErrorKind.PROTOCOL_ERROR: "The answer is not what the protocol allows.",
    ErrorKind.DECODE_ERROR: "The body does not decode from its content coding.",
    ErrorKind.UNSUPPORTED_ENCODING: "The body has a coding that is not known here.",
    ErrorKind.BODY_TOO_LARGE: "An assertion needs the body, and it is larger than 1 MiB.",
    ErrorKind.REDIRECT_LOOP: "Redirects lead in a circle, or there are more than `max_redirects`.",
    ErrorKind.REDIRECT_INVALID: "A redirect leads to something that is not followed.",
    ErrorKind.AUTH_FAILED: "The server, the proxy or the token server refused the credentials.",
    ErrorKind.AUTH_UNSUPPORTED: "The server offers no way to log in that is known here.",
    ErrorKind.STATUS_CODE: "The status is not one that was asserted.",
    ErrorKind.KEYWORD_MISSING: "The body does not contain the text.",
    ErrorKind.KEYWORD_PRESENT: "The body contains the text that it should not.",
    ErrorKind.JSON_ERROR: "The body is not JSON, or too large for a path or a schema.",
    ErrorKind.JSON_PATH_MISSING: "The path leads to nothing.",
    ErrorKind.ASSERTION_FAILED: "Another assertion failed; the message shows what was found.",
    ErrorKind.BANNER_TIMEOUT: "Nothing was received in time.",
    ErrorKind.BANNER_MISMATCH: "What was received is not what was expected.",
    ErrorKind.RECORD_MISMATCH: "Records are missing, or not expected.",
    ErrorKind.DNS_TRUNCATED: "The answer did not fit into a datagram, and TCP gave none.",
    ErrorKind.BLOCKED_TARGET: "The address policy of this installation forbids the connection. Never inverted.",
    ErrorKind.CONFIG_ERROR: "The check cannot be run as it is written. Never inverted.",
    ErrorKind.INTERNAL_ERROR: "A fault of the checker itself: the slot counts as missed, never against the target.",
    ErrorKind.SCHEDULER_GAP: "Not run: no scheduler gave the order in time.",
    ErrorKind.WORKER_GAP: "Not run: no worker was there in time.",
    ErrorKind.OVERLOADED: "Not run: there was more to do than the workers could.",
}
_TABLES: dict[str, type[BaseModel]] = {
    "monitor": MonitorSpec,
    "http": HttpCheck,
    "json body": JsonBody,
    "form body": FormBody,
    "basic": BasicAuth,
    "digest": DigestAuth,
    "bearer": BearerAuth,
    "oauth2": OAuth2Auth,
    "client certificate": ClientCertificate,
    "tls": HttpTls,
    "proxy": Proxy,
    "assertion": Assertion,
    "http_steps": HttpStepsCheck,
    "step": HttpStep,
    "extraction": Extraction,
}
_TOLD_ELSEWHERE = {"step": frozenset(HttpRequest.model_fields)}


def rendered(page: str) -> str:
    """The page with all its tables as the code has them now; raises ``KeyError`` for a table nobody knows."""
    return _PLACE.sub(lambda found: f"{found[1]}{_table(found[2])}{found[3]}", page)


def _table(name: str) -> str:
    rows: list[tuple[str, ...]]
    if name == "errors":
        rows = [("Kind", "Meaning"), *((f"`{kind}`", MEANINGS[kind]) for kind in ErrorKind)]
    elif name == "settings":
        rows = [docs_settings.HEAD, *docs_settings.rows()]
    elif name == "sources":
        rows = [
            ("Source", "Operators"),
            *((f"`{source}`", _operators(known)) for source, known in OPERATORS.items()),
        ]
    else:
        left_out = _TOLD_ELSEWHERE.get(name, frozenset())
        rows = [("Option", "Type", "Default", "Meaning"), *_options(_TABLES[name], left_out)]
    lines = [" | ".join(row) for row in rows]
    lines.insert(1, " | ".join("---" for _ in rows[0]))
    return "".join(f"| {line} |\n" for line in lines)


def _operators(known: frozenset[Operator]) -> str:
    return ", ".join(f"`{operator}`" for operator in Operator if operator in known)


def _options(model: type[BaseModel], left_out: frozenset[str]) -> Iterator[tuple[str, ...]]:
    schema = model.model_json_schema()
    named = ((name, field) for name, field in model.model_fields.items() if name not in left_out)
    for name, field in sorted(named, key=lambda pair: pair[0] not in {"kind", "name"}):
        part = schema["properties"][name]
        secret = any(isinstance(mark, Secret) for mark in field.metadata)
        meaning = " ".join(word for word in (field.description or "", "Secret." if secret else "") if word)
        yield f"`{name}`", _kind(part), "required" if field.is_required() else _default(field.default), meaning


def _default(value: Any) -> str:
    plain = value.model_dump() if isinstance(value, BaseModel) else value
    return "see below" if isinstance(value, BaseModel) else f"`{json.dumps(plain)}`"


def _kind(part: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if choices := part.get("enum") or ([part["const"]] if "const" in part else None):
        return ", ".join(f"`{choice}`" for choice in choices)
    if "$ref" in part:
        return "one of those below" if part["$ref"].endswith("/Operator") else "object"
    if several := part.get("anyOf") or part.get("oneOf"):
        return " or ".join(dict.fromkeys(_kind(each) for each in several if each.get("type") != "null"))
    return _plain_kind(part)


def _plain_kind(part: dict[str, Any]) -> str:
    kind = {"array": "list", "object": "map", "string": "text", None: "any JSON"}.get(
        part.get("type"), part.get("type")
    )
    most = next((part[name] for name in ("maxItems", "maxProperties", "maxLength") if name in part), None)
    if "minimum" in part and "maximum" in part:
        return f"{kind} {part['minimum']}–{part['maximum']}"
    return str(kind) if most is None else f"{kind}, at most {most}"


def main(words: list[str]) -> int:
    """Write the pages, or say whether they are up to date."""
    pages = {place: place.read_text(encoding="utf-8") for place in PAGES}
    current = {place: rendered(page) for place, page in pages.items()}
    if "--check" in words:
        return 0 if pages == current else 1
    for place, page in current.items():
        place.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
