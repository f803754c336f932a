"""How late the weights of a step were, and how many updates were taken back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = ("steps", "step_series")
COLUMNS = ("drift", "drift_bound", "rolled_back")


def upgrade() -> None:
    for table in TABLES:
        for column in COLUMNS:
            op.add_column(table, sa.Column(column, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for table in reversed(TABLES):
        for column in reversed(COLUMNS):
            op.drop_column(table, column)
