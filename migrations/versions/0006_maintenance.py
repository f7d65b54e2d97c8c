"""Maintenance windows and their occurrences."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"

TABLES = """
CREATE TABLE maintenance_windows (
    id uuid CONSTRAINT pk_maintenance_windows PRIMARY KEY,
    organisation_id uuid NOT NULL
        CONSTRAINT fk_maintenance_windows_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    name text NOT NULL,
    monitor_ids uuid[] NOT NULL,
    tags jsonb NOT NULL,
    all_monitors boolean NOT NULL,
    starts_at timestamptz,
    ends_at timestamptz,
    schedule jsonb,
    planned_from timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX ix_maintenance_windows_organisation_id_id ON maintenance_windows (organisation_id, id);

CREATE TABLE maintenance_occurrences (
    window_id uuid NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    organisation_id uuid NOT NULL CONSTRAINT fk_maintenance_occurrences_organisation_id_organisations
        REFERENCES organisations ON DELETE CASCADE,
    monitor_ids uuid[] NOT NULL,
    tags jsonb NOT NULL,
    all_monitors boolean NOT NULL,
    phase text NOT NULL DEFAULT 'planned',
    CONSTRAINT pk_maintenance_occurrences PRIMARY KEY (window_id, starts_at),
    CONSTRAINT ck_maintenance_occurrences_order CHECK (ends_at > starts_at),
    CONSTRAINT ck_maintenance_occurrences_phase CHECK (phase IN ('planned', 'active', 'over'))
);
CREATE INDEX ix_maintenance_occurrences_organisation_id_ends_at
    ON maintenance_occurrences (organisation_id, ends_at);
CREATE INDEX ix_maintenance_occurrences_begin ON maintenance_occurrences (starts_at) WHERE phase = 'planned';
CREATE INDEX ix_maintenance_occurrences_end ON maintenance_occurrences (ends_at) WHERE phase = 'active';
GRANT SELECT, INSERT, UPDATE, DELETE ON maintenance_windows, maintenance_occurrences TO tocsin_app, tocsin_system
"""
TENANT = "(SELECT nullif(current_setting('tocsin.organisation_id', true), '')::uuid)"


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        op.execute(statement)
    for table in ("maintenance_windows", "maintenance_occurrences"):
        own = f"organisation_id = {TENANT}"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY {table}_tenant ON {table} TO tocsin_app USING ({own}) WITH CHECK ({own})")
        op.execute(f"CREATE POLICY {table}_system ON {table} TO tocsin_system USING (true) WITH CHECK (true)")


def downgrade() -> None:
    op.execute("DROP TABLE maintenance_occurrences, maintenance_windows")
