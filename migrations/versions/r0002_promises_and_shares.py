"""Promised placements, why allocations were stopped, shares of projects, and the order of ends of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "promises",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("placement", sa.JSON(), nullable=False),
        sa.Column("transfers", sa.JSON(), nullable=False),
        sa.Column("predicted_iteration_s", sa.Double(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("snapshot_version", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("made_at_s", sa.Double(), nullable=False),
        sa.CheckConstraint("kind IN ('start', 'move')", name="promise_kind"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("job_id"),
    )
    op.add_column(
        "allocations", sa.Column("transfers", sa.JSON(), nullable=False, server_default=sa.text("'[]'"))
    )
    op.add_column("allocations", sa.Column("stop_cause", sa.String(length=64), nullable=True))
    op.add_column("allocations", sa.Column("stop_why", sa.Text(), nullable=True))
    # SQLite adds a constraint only with its column, and with no other statement.
    share = sa.Double().compile(dialect=op.get_bind().dialect)
    op.execute(f"ALTER TABLE projects ADD COLUMN share {share} CONSTRAINT project_share CHECK (share >= 0)")
    op.create_index("jobs_by_end", "jobs", ["finished_at_s"], unique=False)


def downgrade() -> None:
    op.drop_index("jobs_by_end", table_name="jobs")
    op.drop_column("projects", "share")
    for column in ("stop_why", "stop_cause", "transfers"):
        op.drop_column("allocations", column)
    op.drop_table("promises")
