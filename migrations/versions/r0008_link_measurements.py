"""Measurements of links by agents, what they come to, and what an operator says of measuring."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "agents", sa.Column("measures_links", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column(
        "links", sa.Column("capacity_is_limit", sa.Boolean(), nullable=False, server_default=sa.true())
    )
    # SQLite adds a constraint only with its column, and with no other statement.
    op.execute(
        "ALTER TABLE links ADD COLUMN measuring VARCHAR(16)"
        " CONSTRAINT link_measuring CHECK (measuring IN ('off', 'latency', 'bandwidth'))"
    )
    op.create_table(
        "link_tests",
        sa.Column("test_id", sa.String(length=64), primary_key=True),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("src", sa.String(length=63), nullable=False),
        sa.Column("dst", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("from_agent", sa.String(length=64), nullable=False),
        sa.Column("to_agent", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=128), nullable=True),
        sa.Column("max_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_s", sa.Double(), nullable=False),
        sa.Column("asked_at_s", sa.Double(), nullable=False),
        sa.Column("opened_at_s", sa.Double(), nullable=True),
        sa.Column("ended_at_s", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("latency_s", sa.Double(), nullable=True),
        sa.Column("bandwidth_bps", sa.Double(), nullable=True),
        sa.Column("is_floor", sa.Boolean(), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.String(length=255), nullable=True),
        sa.CheckConstraint("kind IN ('latency', 'bandwidth')", name="link_test_kind"),
        sa.CheckConstraint(
            "outcome IN ('done', 'failed', 'broken-off', 'timed-out')", name="link_test_outcome"
        ),
        sa.CheckConstraint("(ended_at_s IS NULL) = (outcome IS NULL)", name="link_test_end"),
    )
    op.create_index("link_tests_of_link", "link_tests", ["src", "dst", "kind", "asked_at_s"], unique=False)
    op.create_index("link_tests_by_end", "link_tests", ["ended_at_s"], unique=False)
    op.create_table(
        "link_estimates",
        sa.Column("src", sa.String(length=63), primary_key=True),
        sa.Column("dst", sa.String(length=63), primary_key=True),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("latency_s", sa.Double(), nullable=True),
        sa.Column("latency_at_s", sa.Double(), nullable=True),
        sa.Column("bandwidth_bps", sa.Double(), nullable=True),
        sa.Column("bandwidth_at_s", sa.Double(), nullable=True),
        sa.Column("used_latency_s", sa.Double(), nullable=True),
        sa.Column("used_bandwidth_bps", sa.Double(), nullable=True),
    )


def downgrade() -> None:
    op.drop_table("link_estimates")
    op.drop_index("link_tests_by_end", table_name="link_tests")
    op.drop_index("link_tests_of_link", table_name="link_tests")
    op.drop_table("link_tests")
    op.drop_column("links", "measuring")
    op.drop_column("links", "capacity_is_limit")
    op.drop_column("agents", "measures_links")
