"""Jobs of the platform and the organisation that operates it."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

UPGRADE = """
CREATE TABLE jobs (
    name text CONSTRAINT pk_jobs PRIMARY KEY,
    every_seconds bigint NOT NULL CONSTRAINT ck_jobs_every CHECK (every_seconds > 0),
    silence_after_seconds bigint NOT NULL,
    runs_in text NOT NULL CONSTRAINT ck_jobs_runs_in CHECK (runs_in IN ('worker', 'api')),
    schedule_id uuid NOT NULL CONSTRAINT uq_jobs_schedule_id UNIQUE,
    revision bigint NOT NULL DEFAULT 1,
    registered_at timestamptz NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    checkpoint jsonb,
    last_started_at timestamptz,
    last_finished_at timestamptz,
    last_success_at timestamptz,
    last_duration_ms bigint,
    last_status text,
    last_error text,
    processed bigint NOT NULL DEFAULT 0,
    runs bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    timeouts bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0
);
ALTER TABLE jobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY jobs_system ON jobs TO tocsin_system USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON jobs TO tocsin_system;
ALTER TABLE organisations ADD COLUMN is_operator boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX uq_organisations_operator ON organisations (is_operator) WHERE is_operator;
SET LOCAL ROLE tocsin_system;
UPDATE organisations SET is_operator = true
    WHERE id = (SELECT id FROM organisations ORDER BY created_at, id LIMIT 1);
RESET ROLE
"""
"""The owner of a table sees no row of it under forced row-level security: the update needs the system's role."""

DOWNGRADE = """
DROP INDEX uq_organisations_operator;
ALTER TABLE organisations DROP COLUMN is_operator;
DROP TABLE jobs
"""


def run(script: str) -> None:
    """The driver takes one statement at a time."""
    for statement in script.split(";\n"):
        op.execute(statement)


def upgrade() -> None:
    run(UPGRADE)


def downgrade() -> None:
    run(DOWNGRADE)
