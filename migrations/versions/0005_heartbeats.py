"""Heartbeat monitors, their pings that wait to be judged, and when pings could be received at all."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"

TABLES = """
CREATE TABLE heartbeats (
    monitor_id uuid CONSTRAINT pk_heartbeats PRIMARY KEY
        CONSTRAINT fk_heartbeats_monitor_id_monitors REFERENCES monitors ON DELETE CASCADE,
    organisation_id uuid NOT NULL,
    token_hash bytea NOT NULL CONSTRAINT uq_heartbeats_token_hash UNIQUE,
    token text NOT NULL,
    state jsonb NOT NULL,
    next_deadline_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX ix_heartbeats_next_deadline_at ON heartbeats (next_deadline_at);

CREATE TABLE heartbeat_pings (
    id uuid CONSTRAINT pk_heartbeat_pings PRIMARY KEY,
    organisation_id uuid NOT NULL,
    monitor_id uuid NOT NULL,
    received_at timestamptz NOT NULL,
    signal text NOT NULL
        CONSTRAINT ck_heartbeat_pings_signal CHECK (signal IN ('success', 'start', 'fail', 'log')),
    exit_code bigint,
    run_id text,
    body text
);
CREATE INDEX ix_heartbeat_pings_monitor_id ON heartbeat_pings (monitor_id);

CREATE TABLE heartbeat_receivers (
    id uuid CONSTRAINT pk_heartbeat_receivers PRIMARY KEY,
    alive_from timestamptz NOT NULL,
    alive_until timestamptz NOT NULL
);
CREATE INDEX ix_heartbeat_receivers_alive_until ON heartbeat_receivers (alive_until);
GRANT SELECT, INSERT, UPDATE, DELETE ON heartbeats, heartbeat_pings TO tocsin_app, tocsin_system;
GRANT SELECT, INSERT, UPDATE, DELETE ON heartbeat_receivers TO tocsin_system
"""
TENANT = "(SELECT nullif(current_setting('tocsin.organisation_id', true), '')::uuid)"


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        op.execute(statement)
    for table in ("heartbeats", "heartbeat_pings"):
        own = f"organisation_id = {TENANT}"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY {table}_tenant ON {table} TO tocsin_app USING ({own}) WITH CHECK ({own})")
        op.execute(f"CREATE POLICY {table}_system ON {table} TO tocsin_system USING (true) WITH CHECK (true)")


def downgrade() -> None:
    op.execute("DROP TABLE heartbeat_receivers, heartbeat_pings, heartbeats")
