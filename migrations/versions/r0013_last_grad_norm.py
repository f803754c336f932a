"""The gradient norm of each job's last step, beside its last loss: filled from what is stored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("step_series", sa.Column("last_grad_norm", sa.Double(), nullable=True))
    op.execute(
        "UPDATE step_series SET last_grad_norm = ("
        "SELECT s.grad_norm FROM steps s"
        " WHERE s.job_id = step_series.job_id AND s.step = step_series.last_step)"
    )


def downgrade() -> None:
    op.drop_column("step_series", "last_grad_norm")
