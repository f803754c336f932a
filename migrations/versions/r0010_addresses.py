"""Indexes by address: what a start asks of the machine of its first rank."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "allocations_by_master",
        "allocations",
        ["master_address", "created_at_s", "allocation_id"],
        unique=False,
    )
    op.create_index("nodes_by_address", "nodes", ["address"], unique=False)


def downgrade() -> None:
    op.drop_index("nodes_by_address", table_name="nodes")
    op.drop_index("allocations_by_master", table_name="allocations")
