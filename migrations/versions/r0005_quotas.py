"""Quotas of projects, and what each has spent in a month."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    dialect = op.get_bind().dialect
    # SQLite adds a constraint only with its column, and with no other statement.
    for name, kind, constraint in (
        ("quota_gpus", sa.Integer(), "project_quota_gpus"),
        ("quota_usd_per_month", sa.Double(), "project_quota_usd"),
    ):
        op.execute(
            f"ALTER TABLE projects ADD COLUMN {name} {kind.compile(dialect=dialect)}"
            f" CONSTRAINT {constraint} CHECK ({name} >= 0)"
        )
    op.create_table(
        "monthly_spending",
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("amount_usd", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project", "month"),
    )
    month = "strftime('%Y-%m', from_s, 'unixepoch')"
    if dialect.name == "postgresql":
        month = "to_char(to_timestamp(from_s) AT TIME ZONE 'UTC', 'YYYY-MM')"
    op.execute(
        "INSERT INTO monthly_spending (project, month, amount_usd)"  # noqa: S608 - one of the two texts above
        f" SELECT project, {month}, sum(amount_usd) FROM ledger"
        f" WHERE kind IN ('electricity', 'rent', 'egress') GROUP BY project, {month}"
    )


def downgrade() -> None:
    op.drop_table("monthly_spending")
    for column in ("quota_usd_per_month", "quota_gpus"):
        op.drop_column("projects", column)
