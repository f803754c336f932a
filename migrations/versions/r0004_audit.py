"""The audit log, whose rows the database refuses to change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_REFUSAL = "rows of the audit log are never changed"


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("last_at_s", sa.Double(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("token_id", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=255), nullable=False),
        sa.Column("path", sa.String(length=255), nullable=False),
        sa.Column("object_kind", sa.String(length=16), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=8), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("trace_id", sa.String(length=64), nullable=False),
        sa.CheckConstraint("outcome IN ('done', 'denied', 'refused', 'failed')", name="audit_outcome"),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("audit_of_project", "audit", ["project", "seq"], unique=False)
    op.create_index("audit_by_age", "audit", ["last_at_s"], unique=False)
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER audit_append_only BEFORE UPDATE ON audit"
            f" BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        )
        return
    op.execute(
        "CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'check_violation'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_append_only BEFORE UPDATE ON audit"
        " FOR EACH ROW EXECUTE FUNCTION audit_append_only()"
    )


def downgrade() -> None:
    op.drop_table("audit")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION audit_append_only()")
