"""The certificates that monitors have seen, and a way to what waits in the outbox about one thing."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

TABLES = """
CREATE TABLE certificates (
    monitor_id uuid NOT NULL CONSTRAINT fk_certificates_monitor_id_monitors REFERENCES monitors ON DELETE CASCADE,
    fingerprint_sha256 text NOT NULL,
    organisation_id uuid NOT NULL,
    first_seen_at timestamptz NOT NULL,
    facts jsonb NOT NULL,
    changes jsonb NOT NULL,
    accepted_at timestamptz,
    accepted_by text,
    CONSTRAINT pk_certificates PRIMARY KEY (monitor_id, fingerprint_sha256),
    CONSTRAINT ck_certificates_accepted CHECK (accepted_by IS NULL OR accepted_at IS NOT NULL)
);
CREATE INDEX ix_outbox_topic_key_id ON outbox (topic, key, id);
GRANT SELECT, UPDATE (accepted_at, accepted_by) ON certificates TO tocsin_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON certificates TO tocsin_system
"""
TENANT = "(SELECT nullif(current_setting('tocsin.organisation_id', true), '')::uuid)"


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        op.execute(statement)
    own = f"organisation_id = {TENANT}"
    op.execute("ALTER TABLE certificates ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY certificates_tenant ON certificates TO tocsin_app USING ({own}) WITH CHECK ({own})")
    op.execute("CREATE POLICY certificates_system ON certificates TO tocsin_system USING (true) WITH CHECK (true)")


def downgrade() -> None:
    op.execute("DROP INDEX ix_outbox_topic_key_id")
    op.execute("DROP TABLE certificates")
