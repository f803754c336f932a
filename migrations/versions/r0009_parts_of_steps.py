"""What a step's time went into, and the norm of its gradients."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS = ("grad_norm", "compute_s", "send_s")


def upgrade() -> None:
    for column in COLUMNS:
        op.add_column("steps", sa.Column(column, sa.Double(), nullable=True))


def downgrade() -> None:
    for column in reversed(COLUMNS):
        op.drop_column("steps", column)
