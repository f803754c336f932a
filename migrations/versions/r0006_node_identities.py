"""Tokens that let a node join once, identities of nodes, and agents that were revoked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("single_use", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("tokens", sa.Column("region", sa.String(length=63), nullable=True))
    op.add_column("tokens", sa.Column("agent_id", sa.String(length=64), nullable=True))
    op.create_index("ix_tokens_agent_id", "tokens", ["agent_id"], unique=False)
    op.add_column("agents", sa.Column("revoked_at_s", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("agents", "revoked_at_s")
    op.drop_index("ix_tokens_agent_id", table_name="tokens")
    # The version before knows neither kind of token: it would take them for tokens that any agent may use.
    op.execute("UPDATE tokens SET revoked_at_s = created_at_s WHERE revoked_at_s IS NULL AND single_use")
    op.execute(
        "UPDATE tokens SET revoked_at_s = created_at_s WHERE revoked_at_s IS NULL AND agent_id IS NOT NULL"
    )
    for column in ("agent_id", "region", "single_use"):
        op.drop_column("tokens", column)
