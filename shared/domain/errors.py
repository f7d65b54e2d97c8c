"""Why a check failed, as data: one closed list of kinds that users, dashboards and alerts rely on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """Every ``error.kind`` a result can carry. Names are public: add, never rename."""

    DNS_NXDOMAIN = "dns_nxdomain"
    DNS_NO_DATA = "dns_no_data"
    DNS_FAILURE = "dns_failure"
    DNS_TIMEOUT = "dns_timeout"
    CONNECT_REFUSED = "connect_refused"
    CONNECT_TIMEOUT = "connect_timeout"
    CONNECT_UNREACHABLE = "connect_unreachable"
    CONNECTION_RESET = "connection_reset"
    TLS_EXPIRED = "tls_expired"
    TLS_NOT_YET_VALID = "tls_not_yet_valid"
    TLS_SELF_SIGNED = "tls_self_signed"
    TLS_UNTRUSTED = "tls_untrusted"
    TLS_CHAIN_INCOMPLETE = "tls_chain_incomplete"
    TLS_HOSTNAME_MISMATCH = "tls_hostname_mismatch"
    TLS_WEAK = "tls_weak"
    TLS_CHANGED = "tls_changed"
    TLS_CLIENT_CERT_REQUIRED = "tls_client_cert_required"
    TLS_HANDSHAKE = "tls_handshake"
    TIMEOUT = "timeout"
    EMPTY_REPLY = "empty_reply"
    INCOMPLETE_BODY = "incomplete_body"
    PROTOCOL_ERROR = "protocol_error"
    DECODE_ERROR = "decode_error"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    BODY_TOO_LARGE = "body_too_large"
    REDIRECT_LOOP = "redirect_loop"
    REDIRECT_INVALID = "redirect_invalid"
    AUTH_FAILED = "auth_failed"
    AUTH_UNSUPPORTED = "auth_unsupported"
    STATUS_CODE = "status_code"
    KEYWORD_MISSING = "keyword_missing"
    KEYWORD_PRESENT = "keyword_present"
    JSON_ERROR = "json_error"
    JSON_PATH_MISSING = "json_path_missing"
    ASSERTION_FAILED = "assertion_failed"
    BANNER_TIMEOUT = "banner_timeout"
    BANNER_MISMATCH = "banner_mismatch"
    RECORD_MISMATCH = "record_mismatch"
    DNS_TRUNCATED = "dns_truncated"
    BLOCKED_TARGET = "blocked_target"
    CONFIG_ERROR = "config_error"
    INTERNAL_ERROR = "internal_error"
    SCHEDULER_GAP = "scheduler_gap"
    WORKER_GAP = "worker_gap"
    OVERLOADED = "overloaded"


class MissedReason(StrEnum):
    """Why a due slot was not run; the three kinds that come with the status ``missed``."""

    SCHEDULER_GAP = ErrorKind.SCHEDULER_GAP.value
    WORKER_GAP = ErrorKind.WORKER_GAP.value
    OVERLOADED = ErrorKind.OVERLOADED.value


MESSAGE_LIMIT = 500


@dataclass(frozen=True, slots=True)
class CheckError:
    """What went wrong, for machines (``kind``) and people (``message``: bounded, without secrets)."""

    kind: ErrorKind
    message: str

    def __post_init__(self) -> None:
        if len(self.message) > MESSAGE_LIMIT:
            object.__setattr__(self, "message", self.message[: MESSAGE_LIMIT - 1] + "…")
