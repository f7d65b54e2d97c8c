"""Tenants, monitors, results and the outbox, with row-level security from the first day on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from shared.db.errors import MigrationError

revision = "0001"
down_revision = None

APP = "tocsin_app"
SYSTEM = "tocsin_system"

TABLES = """
CREATE TABLE organisations (
    id uuid CONSTRAINT pk_organisations PRIMARY KEY,
    name text NOT NULL,
    slug text NOT NULL CONSTRAINT uq_organisations_slug UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE users (
    id uuid CONSTRAINT pk_users PRIMARY KEY,
    email text NOT NULL,
    name text NOT NULL,
    password_hash text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX uq_users_email ON users (lower(email));

CREATE TABLE memberships (
    organisation_id uuid NOT NULL
        CONSTRAINT fk_memberships_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    user_id uuid NOT NULL CONSTRAINT fk_memberships_user_id_users REFERENCES users ON DELETE CASCADE,
    role text NOT NULL CONSTRAINT ck_memberships_role CHECK (role IN ('owner', 'admin', 'member')),
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_memberships PRIMARY KEY (organisation_id, user_id)
);
CREATE INDEX ix_memberships_user_id ON memberships (user_id);

CREATE TABLE api_keys (
    id uuid CONSTRAINT pk_api_keys PRIMARY KEY,
    organisation_id uuid NOT NULL
        CONSTRAINT fk_api_keys_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    name text NOT NULL,
    prefix text NOT NULL,
    key_hash bytea NOT NULL CONSTRAINT uq_api_keys_key_hash UNIQUE,
    scopes text[] NOT NULL,
    created_by uuid CONSTRAINT fk_api_keys_created_by_users REFERENCES users ON DELETE SET NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX ix_api_keys_organisation_id ON api_keys (organisation_id);

CREATE TABLE monitors (
    id uuid CONSTRAINT pk_monitors PRIMARY KEY,
    organisation_id uuid NOT NULL
        CONSTRAINT fk_monitors_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    name text NOT NULL,
    kind text NOT NULL,
    interval_seconds bigint NOT NULL
        CONSTRAINT ck_monitors_interval CHECK (interval_seconds BETWEEN 5 AND 86400),
    timeout_seconds float8 NOT NULL,
    regions text[] NOT NULL,
    tags jsonb NOT NULL,
    retries bigint NOT NULL,
    retry_delay_seconds float8 NOT NULL,
    failure_threshold bigint NOT NULL,
    recovery_threshold bigint NOT NULL,
    check_spec jsonb NOT NULL,
    revision bigint NOT NULL,
    paused_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX ix_monitors_organisation_id_id ON monitors (organisation_id, id);

CREATE TABLE schedule_periods (
    id uuid CONSTRAINT pk_schedule_periods PRIMARY KEY,
    organisation_id uuid NOT NULL,
    monitor_id uuid NOT NULL,
    revision bigint NOT NULL,
    interval_ms bigint NOT NULL,
    regions text[] NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz,
    CONSTRAINT ck_schedule_periods_order CHECK (ends_at >= starts_at)
);
CREATE UNIQUE INDEX uq_schedule_periods_open ON schedule_periods (monitor_id) WHERE ends_at IS NULL;
CREATE INDEX ix_schedule_periods_monitor_id_starts_at ON schedule_periods (monitor_id, starts_at);
CREATE INDEX ix_schedule_periods_ends_at ON schedule_periods (ends_at);

CREATE TABLE monitor_state (
    monitor_id uuid CONSTRAINT pk_monitor_state PRIMARY KEY
        CONSTRAINT fk_monitor_state_monitor_id_monitors REFERENCES monitors ON DELETE CASCADE,
    organisation_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'pending' CONSTRAINT ck_monitor_state_status
        CHECK (status IN ('pending', 'up', 'degraded', 'down', 'unknown', 'maintenance')),
    status_since timestamptz NOT NULL,
    last_slot_at timestamptz,
    consecutive_failures bigint NOT NULL DEFAULT 0,
    consecutive_successes bigint NOT NULL DEFAULT 0,
    last_result jsonb,
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE check_results (
    monitor_id uuid NOT NULL,
    scheduled_at timestamptz NOT NULL,
    region text NOT NULL,
    organisation_id uuid NOT NULL,
    started_at timestamptz,
    revision bigint NOT NULL,
    status text NOT NULL
        CONSTRAINT ck_check_results_status CHECK (status IN ('up', 'degraded', 'down', 'missed')),
    attempts bigint NOT NULL,
    error_kind text,
    error_message text,
    total_ms float8,
    trigger text NOT NULL,
    detail jsonb NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_check_results PRIMARY KEY (monitor_id, scheduled_at, region)
) PARTITION BY RANGE (scheduled_at);

CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_outbox PRIMARY KEY,
    organisation_id uuid NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE idempotency_keys (
    organisation_id uuid NOT NULL
        CONSTRAINT fk_idempotency_keys_organisation_id_organisations REFERENCES organisations ON DELETE CASCADE,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    status_code bigint,
    body bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (organisation_id, key)
);
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at)
"""

# Roles belong to the whole cluster: another database of it may be creating or granting them at this moment.
ROLES = """
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['tocsin_app', 'tocsin_system'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$
"""
GRANT_ROLES = """
DO $$
DECLARE
    wanted text;
    modern boolean := current_setting('server_version_num')::int >= 160000;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['tocsin_app', 'tocsin_system'] LOOP
        FOR attempt IN 1..20 LOOP
            EXIT WHEN pg_has_role(current_user, wanted, CASE WHEN modern THEN 'SET' ELSE 'MEMBER' END);
            BEGIN
                -- Without INHERIT: the login role holds the rights only while it acts in the role.
                EXECUTE format('GRANT %I TO %I', wanted, current_user)
                     || CASE WHEN modern THEN ' WITH SET TRUE, INHERIT FALSE' ELSE '' END;
            EXCEPTION WHEN internal_error OR unique_violation THEN
                PERFORM pg_sleep(0.05);  -- "tuple concurrently updated": the other one was quicker
            END;
        END LOOP;
    END LOOP;
END
$$
"""

TENANT_TABLES = (
    "memberships",
    "api_keys",
    "monitors",
    "schedule_periods",
    "monitor_state",
    "check_results",
    "outbox",
    "idempotency_keys",
)
# An empty setting is what a pooled connection shows after a transaction that had set it: no tenant.
TENANT = "(SELECT nullif(current_setting('tocsin.organisation_id', true), '')::uuid)"

GRANTS = """
GRANT USAGE ON SCHEMA public TO tocsin_app, tocsin_system;
GRANT SELECT ON alembic_version TO tocsin_app, tocsin_system;
GRANT SELECT, UPDATE (name) ON organisations TO tocsin_app;
GRANT SELECT (id, email, name, created_at) ON users TO tocsin_app;
GRANT SELECT ON memberships TO tocsin_app;
GRANT SELECT, INSERT, UPDATE (revoked_at) ON api_keys TO tocsin_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON monitors TO tocsin_app;
GRANT SELECT, INSERT, UPDATE (ends_at) ON schedule_periods TO tocsin_app;
GRANT SELECT, INSERT, UPDATE ON monitor_state TO tocsin_app;
GRANT SELECT ON check_results TO tocsin_app;
GRANT INSERT ON outbox TO tocsin_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_keys TO tocsin_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON organisations, users, memberships, api_keys, monitors, schedule_periods,
    monitor_state, check_results, outbox, idempotency_keys TO tocsin_system
"""

# ATTACH takes a lock that lets readers and writers of other days go on; CREATE … PARTITION OF would stop them.
ENSURE_PARTITIONS = """
CREATE FUNCTION tocsin_ensure_partitions(first_day date, last_day date) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    day date;
    partition text;
    created int := 0;
BEGIN
    IF last_day - first_day > 400 THEN
        RAISE EXCEPTION 'refusing to create % daily partitions at once', last_day - first_day + 1;
    END IF;
    FOR day IN SELECT first_day + n FROM generate_series(0, last_day - first_day) AS n LOOP
        partition := 'check_results_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('public.' || partition) IS NOT NULL;
        PERFORM pg_advisory_xact_lock(7226002);
        -- Asked of the table itself: an advisory lock does not refresh the cache that to_regclass answers from.
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname = partition
        );
        EXECUTE format('CREATE TABLE public.%I (LIKE public.check_results INCLUDING ALL)', partition);
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', partition);
        EXECUTE format('ALTER TABLE public.check_results ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
            partition, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
        created := created + 1;
    END LOOP;
    RETURN created;
END
$$
"""
DROP_PARTITIONS = """
CREATE FUNCTION tocsin_drop_partitions(before date) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    partition text;
    dropped int := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(7226002);
    FOR partition IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'public.check_results'::regclass
          AND c.relname ~ '^check_results_[0-9]{8}$' AND to_date(right(c.relname, 8), 'YYYYMMDD') < before
        ORDER BY c.relname
    LOOP
        EXECUTE format('DROP TABLE public.%I', partition);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$
"""
FUNCTION_GRANTS = """
REVOKE ALL ON FUNCTION tocsin_ensure_partitions(date, date), tocsin_drop_partitions(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tocsin_ensure_partitions(date, date), tocsin_drop_partitions(date) TO tocsin_system
"""
FIRST_PARTITIONS = """
SELECT tocsin_ensure_partitions(today - 1, today + 7) FROM (SELECT (now() AT TIME ZONE 'UTC')::date AS today) AS t
"""


def run(script: str) -> None:
    """The driver takes one statement at a time."""
    for statement in script.split(";\n"):
        op.execute(statement)


def policy(table: str, condition: str) -> None:
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY {table}_tenant ON {table} TO {APP} USING ({condition}) WITH CHECK ({condition})")
    op.execute(f"CREATE POLICY {table}_system ON {table} TO {SYSTEM} USING (true) WITH CHECK (true)")


def roles() -> None:
    try:
        op.execute(ROLES)
        op.execute(GRANT_ROLES)
    except sa.exc.ProgrammingError as error:
        login = op.get_bind().engine.url.username
        raise MigrationError(
            f"{error.orig}: a database administrator must run once: CREATE ROLE {APP} NOLOGIN; "
            f"CREATE ROLE {SYSTEM} NOLOGIN; GRANT {APP}, {SYSTEM} TO {login};"
        ) from error


def upgrade() -> None:
    roles()
    run(TABLES)
    for table in TENANT_TABLES:
        policy(table, f"organisation_id = {TENANT}")
    policy("organisations", f"id = {TENANT}")
    policy(
        "users",
        f"EXISTS (SELECT FROM memberships AS m WHERE m.user_id = users.id AND m.organisation_id = {TENANT})",
    )
    run(GRANTS)
    op.execute(ENSURE_PARTITIONS)
    op.execute(DROP_PARTITIONS)
    run(FUNCTION_GRANTS)
    op.execute(FIRST_PARTITIONS)


def downgrade() -> None:
    # The roles stay: other databases of the cluster may use them.
    run("""
        DROP FUNCTION tocsin_ensure_partitions(date, date);
        DROP FUNCTION tocsin_drop_partitions(date);
        DROP TABLE idempotency_keys, outbox, check_results, monitor_state, schedule_periods, monitors, api_keys,
            memberships, users, organisations;
        REVOKE ALL ON SCHEMA public FROM tocsin_app, tocsin_system;
        REVOKE ALL ON alembic_version FROM tocsin_app, tocsin_system
    """)
