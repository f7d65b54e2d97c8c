"""State per region, history of states, incidents and their timeline."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"

APP = "tocsin_app"
SYSTEM = "tocsin_system"
# An empty setting is what a pooled connection shows after a transaction that had set it: no tenant.
TENANT = "(SELECT nullif(current_setting('tocsin.organisation_id', true), '')::uuid)"

COLUMNS = """
ALTER TABLE monitors
    ADD COLUMN region_quorum bigint,
    ADD COLUMN flap_window_seconds bigint NOT NULL DEFAULT 300,
    ADD COLUMN parents uuid[] NOT NULL DEFAULT '{}';
CREATE INDEX ix_monitors_parents ON monitors USING gin (parents);
ALTER TABLE monitor_state
    ADD COLUMN regions jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN announced text NOT NULL DEFAULT 'up'
        CONSTRAINT ck_monitor_state_announced CHECK (announced IN ('up', 'degraded', 'down')),
    ADD COLUMN overlay text CONSTRAINT ck_monitor_state_overlay CHECK (overlay IN ('paused', 'maintenance')),
    ADD COLUMN overlay_since timestamptz,
    ADD CONSTRAINT ck_monitor_state_since CHECK ((overlay IS NULL) = (overlay_since IS NULL))
"""

TABLES = """
CREATE TABLE incidents (
    id uuid CONSTRAINT pk_incidents PRIMARY KEY,
    organisation_id uuid NOT NULL,
    monitor_id uuid,
    kind text NOT NULL CONSTRAINT ck_incidents_kind CHECK (kind IN ('monitor', 'platform')),
    state text NOT NULL CONSTRAINT ck_incidents_state CHECK (state IN ('open', 'acknowledged', 'resolved')),
    severity text NOT NULL CONSTRAINT ck_incidents_severity CHECK (severity IN ('down', 'degraded')),
    cause text NOT NULL,
    message text NOT NULL,
    started_at timestamptz NOT NULL,
    opened_at timestamptz NOT NULL,
    last_failure_at timestamptz NOT NULL,
    acknowledged_at timestamptz,
    acknowledged_by text,
    resolved_at timestamptz,
    resolved_by text,
    reopened bigint NOT NULL DEFAULT 0,
    affected_by uuid,
    alert_not_before timestamptz,
    silent boolean NOT NULL DEFAULT false,
    held boolean NOT NULL DEFAULT false,
    worker text NOT NULL DEFAULT '',
    region text NOT NULL DEFAULT '',
    expiry_warning bigint,
    first_result jsonb,
    last_result jsonb,
    policy_id uuid,
    next_step bigint NOT NULL DEFAULT 0,
    next_alert_at timestamptz,
    reminders bigint NOT NULL DEFAULT 0,
    CONSTRAINT ck_incidents_resolved CHECK ((state = 'resolved') = (resolved_at IS NOT NULL))
);
CREATE UNIQUE INDEX uq_incidents_open_monitor ON incidents (monitor_id)
    WHERE state <> 'resolved' AND kind = 'monitor';
CREATE UNIQUE INDEX uq_incidents_open_platform ON incidents (region, worker)
    WHERE state <> 'resolved' AND kind = 'platform';
CREATE INDEX ix_incidents_organisation_id_id ON incidents (organisation_id, id);
CREATE INDEX ix_incidents_monitor_id_id ON incidents (monitor_id, id);
CREATE INDEX ix_incidents_affected_by ON incidents (affected_by) WHERE affected_by IS NOT NULL;
CREATE INDEX ix_incidents_held ON incidents (id) WHERE held;
CREATE INDEX ix_incidents_next_alert_at ON incidents (next_alert_at) WHERE next_alert_at IS NOT NULL;

CREATE TABLE incident_events (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_incident_events PRIMARY KEY,
    organisation_id uuid NOT NULL,
    incident_id uuid NOT NULL
        CONSTRAINT fk_incident_events_incident_id_incidents REFERENCES incidents ON DELETE CASCADE,
    at timestamptz NOT NULL,
    kind text NOT NULL CONSTRAINT ck_incident_events_kind CHECK (kind IN ('opened', 'reopened', 'acknowledged',
        'resolved', 'comment', 'delivery', 'affected', 'released')),
    actor text,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX ix_incident_events_incident_id_id ON incident_events (incident_id, id);

CREATE TABLE state_periods (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_state_periods PRIMARY KEY,
    organisation_id uuid NOT NULL,
    monitor_id uuid NOT NULL,
    status text NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz,
    CONSTRAINT ck_state_periods_order CHECK (ends_at >= starts_at)
);
CREATE UNIQUE INDEX uq_state_periods_open ON state_periods (monitor_id) WHERE ends_at IS NULL;
CREATE INDEX ix_state_periods_monitor_id_starts_at ON state_periods (monitor_id, starts_at);

CREATE UNLOGGED TABLE worker_beats (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_worker_beats PRIMARY KEY,
    worker text NOT NULL,
    region text NOT NULL,
    at timestamptz NOT NULL,
    turned bigint NOT NULL,
    well bigint NOT NULL,
    stored_at timestamptz NOT NULL
);
CREATE INDEX ix_worker_beats_stored_at ON worker_beats (stored_at)
"""

# Under forced row-level security the owner of the tables sees no row: what is stored moves in the system's role.
MOVE = """
SET LOCAL ROLE tocsin_system;
UPDATE monitor_state AS s SET overlay = 'paused', overlay_since = m.paused_at
    FROM monitors AS m WHERE m.id = s.monitor_id AND m.paused_at IS NOT NULL;
UPDATE monitor_state AS s SET regions = jsonb_build_object(m.regions[1], jsonb_build_object(
        'slot_ms', floor(extract(epoch FROM s.last_slot_at) * 1000)::bigint, 'status', s.status, 'verdict', NULL,
        'since_ms', floor(extract(epoch FROM s.status_since) * 1000)::bigint,
        'failures', s.consecutive_failures, 'successes', s.consecutive_successes))
    FROM monitors AS m WHERE m.id = s.monitor_id AND s.last_slot_at IS NOT NULL;
INSERT INTO state_periods (organisation_id, monitor_id, status, starts_at)
    SELECT organisation_id, monitor_id, coalesce(overlay, status), coalesce(overlay_since, status_since)
    FROM monitor_state;
RESET ROLE
"""

GRANTS = """
GRANT SELECT, INSERT, UPDATE ON incidents, state_periods TO tocsin_app;
GRANT SELECT, INSERT ON incident_events TO tocsin_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON incidents, incident_events, state_periods, worker_beats TO tocsin_system
"""

DOWNGRADE = """
DROP TABLE worker_beats, state_periods, incident_events, incidents;
ALTER TABLE monitor_state DROP COLUMN regions, DROP COLUMN announced, DROP COLUMN overlay,
    DROP COLUMN overlay_since;
ALTER TABLE monitors DROP COLUMN region_quorum, DROP COLUMN flap_window_seconds, DROP COLUMN parents
"""


def run(script: str) -> None:
    """The driver takes one statement at a time."""
    for statement in script.split(";\n"):
        op.execute(statement)


def policy(table: str) -> None:
    condition = f"organisation_id = {TENANT}"
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY {table}_tenant ON {table} TO {APP} USING ({condition}) WITH CHECK ({condition})")
    op.execute(f"CREATE POLICY {table}_system ON {table} TO {SYSTEM} USING (true) WITH CHECK (true)")


def upgrade() -> None:
    run(COLUMNS)
    run(TABLES)
    for table in ("incidents", "incident_events", "state_periods"):
        policy(table)
    op.execute("ALTER TABLE worker_beats ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY worker_beats_system ON worker_beats TO {SYSTEM} USING (true) WITH CHECK (true)")
    run(GRANTS)
    run(MOVE)


def downgrade() -> None:
    run(DOWNGRADE)
