"""How much of what a worker looks at fails as before: without it, only what was well spoke for a suspect."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute("ALTER TABLE worker_beats ADD COLUMN failing bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE worker_beats DROP COLUMN failing")
