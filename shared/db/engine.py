"""Connections: which address, as which role, with which limits."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shared.db.errors import DatabaseUnusableError

_SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Limits of one pool; all times in seconds."""

    size: int = 5
    overflow: int = 5
    connect_timeout: float = 5.0
    statement_timeout: float = 30.0
    idle_in_transaction_timeout: float = 60.0


def parse_url(url: str) -> URL:
    """The URL in the form the driver wants; raises ``DatabaseUnusableError`` for anything but PostgreSQL."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise DatabaseUnusableError(*_URL_ADVICE) from error
    if parsed.drivername not in _SCHEMES:
        raise DatabaseUnusableError(*_URL_ADVICE)
    if unknown := sorted(parsed.query.keys() - _PARAMETERS):
        raise DatabaseUnusableError(
            f"the URL of the database has parameters that the driver does not take: {', '.join(unknown)}",
            f"TOCSIN_DATABASE_URL may carry {', '.join(sorted(_PARAMETERS))}",
        )
    if sslmode := parsed.query.get("sslmode"):
        # What PostgreSQL's own programs call sslmode; the driver knows the same words.
        parsed = parsed.difference_update_query(["sslmode"]).update_query_dict({"ssl": sslmode})
    return parsed.set(drivername="postgresql+asyncpg")


_PARAMETERS = frozenset({"host", "passfile", "ssl", "sslmode", "target_session_attrs"})
_URL_ADVICE = (
    "the URL of the database cannot be used",
    "TOCSIN_DATABASE_URL must look like postgresql://user:password@host:5432/database",
)


def create_engine(url: str, role: str, application_name: str, options: PoolOptions) -> AsyncEngine:
    """An engine whose connections hold ``role`` from their first moment; nothing is opened yet."""
    return create_async_engine(
        parse_url(url),
        pool_size=options.size,
        max_overflow=options.overflow,
        pool_timeout=options.connect_timeout,
        # A restarted server leaves dead connections in the pool: each is tried before it is used.
        pool_pre_ping=True,
        # Errors end in logs and dead letters, and parameters are what users wrote.
        hide_parameters=True,
        json_serializer=_json,
        json_deserializer=msgspec.json.decode,
        connect_args={
            "timeout": options.connect_timeout,
            # The server enforces its own limit first; this one is for a server that is frozen.
            "command_timeout": options.statement_timeout + 5,
            "server_settings": {
                "role": role,
                "application_name": application_name,
                "timezone": "UTC",
                "jit": "off",
                "statement_timeout": _milliseconds(options.statement_timeout),
                "idle_in_transaction_session_timeout": _milliseconds(options.idle_in_transaction_timeout),
            },
        },
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
