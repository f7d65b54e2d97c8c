"""Channels, alert policies and deliveries."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"

TABLES = """
CREATE TABLE channels (
    id uuid CONSTRAINT pk_channels PRIMARY KEY,
    organisation_id uuid NOT NULL
        CONSTRAINT fk_channels_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    name text NOT NULL,
    kind text NOT NULL,
    config jsonb NOT NULL,
    is_default boolean NOT NULL,
    templates jsonb NOT NULL,
    fallback_channel_id uuid
        CONSTRAINT fk_channels_fallback_channel_id_channels REFERENCES channels ON DELETE SET NULL,
    failing_since timestamptz,
    last_error text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX ix_channels_organisation_id_id ON channels (organisation_id, id);

CREATE TABLE alert_policies (
    id uuid CONSTRAINT pk_alert_policies PRIMARY KEY,
    organisation_id uuid NOT NULL
        CONSTRAINT fk_alert_policies_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    priority bigint NOT NULL,
    spec jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX ix_alert_policies_organisation_id_priority_id ON alert_policies (organisation_id, priority, id);

CREATE TABLE deliveries (
    id uuid CONSTRAINT pk_deliveries PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    organisation_id uuid NOT NULL
        CONSTRAINT fk_deliveries_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    incident_id uuid,
    episode bigint,
    dedupe_key text NOT NULL CONSTRAINT uq_deliveries_dedupe_key UNIQUE,
    event text NOT NULL,
    channel_id uuid NOT NULL,
    channel_name text NOT NULL,
    channel_kind text NOT NULL,
    fallback_of uuid,
    notification jsonb NOT NULL,
    state text NOT NULL CONSTRAINT ck_deliveries_state
        CHECK (state IN ('pending', 'sending', 'retrying', 'delivered', 'failed', 'skipped')),
    attempts bigint NOT NULL DEFAULT 0,
    possibly_duplicated boolean NOT NULL DEFAULT false,
    status_code bigint,
    response text,
    error text,
    created_at timestamptz NOT NULL,
    claimed_at timestamptz,
    not_before timestamptz,
    settled_at timestamptz,
    queue_after timestamptz,
    queued bigint NOT NULL DEFAULT 0,
    CONSTRAINT ck_deliveries_queued_until_settled CHECK ((queue_after IS NULL) = (settled_at IS NOT NULL))
);
CREATE INDEX ix_deliveries_incident_id_channel_id_number ON deliveries (incident_id, channel_id, number);
CREATE INDEX ix_deliveries_channel_id_id ON deliveries (channel_id, id);
CREATE INDEX ix_deliveries_queue_after ON deliveries (queue_after) WHERE queue_after IS NOT NULL
"""
TABLE_NAMES = ("channels", "alert_policies", "deliveries")
TENANT = "(SELECT nullif(current_setting('tocsin.organisation_id', true), '')::uuid)"
GRANTS = """
GRANT SELECT, INSERT, UPDATE, DELETE ON channels, alert_policies TO tocsin_app;
GRANT SELECT, INSERT ON deliveries TO tocsin_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON channels, alert_policies, deliveries TO tocsin_system
"""


def run(script: str) -> None:
    """The driver takes one statement at a time."""
    for statement in script.split(";\n"):
        op.execute(statement)


def upgrade() -> None:
    run(TABLES)
    for table in TABLE_NAMES:
        condition = f"organisation_id = {TENANT}"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY {table}_tenant ON {table} TO tocsin_app USING ({condition}) WITH CHECK ({condition})"
        )
        op.execute(f"CREATE POLICY {table}_system ON {table} TO tocsin_system USING (true) WITH CHECK (true)")
    run(GRANTS)


def downgrade() -> None:
    op.execute("DROP TABLE deliveries, alert_policies, channels")
