"""Accounts, their roles, and tokens that belong to them and can be rotated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ROLES_BEFORE = "role IN ('admin', 'submitter', 'viewer', 'agent')"
_ROLES = "role IN ('admin', 'project-admin', 'submitter', 'viewer', 'agent')"


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.Column("disabled_at_s", sa.Double(), nullable=True),
        sa.CheckConstraint("kind IN ('user', 'service')", name="account_kind"),
        sa.PrimaryKeyConstraint("account_id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "roles",
        sa.Column("account_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.CheckConstraint(
            "(project = '*' AND role IN ('admin', 'viewer', 'agent'))"
            " OR (project <> '*' AND role IN ('project-admin', 'submitter', 'viewer'))",
            name="role_in_project",
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"]),
        sa.PrimaryKeyConstraint("account_id", "project"),
    )
    op.create_index("ix_roles_project", "roles", ["project"], unique=False)
    # A token of before becomes that of a service account of its own, with just the role that it has.
    op.execute(
        "INSERT INTO accounts (account_id, project, name, kind, created_at_s)"
        " SELECT token_id, project, token_id, 'service', created_at_s FROM tokens"
    )
    op.execute("INSERT INTO roles (account_id, project, role) SELECT token_id, project, role FROM tokens")
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(sa.Column("account_id", sa.String(length=64), nullable=True))
        tokens.add_column(sa.Column("previous_sha256", sa.String(length=64), nullable=True))
        tokens.add_column(sa.Column("previous_until_s", sa.Double(), nullable=True))
        tokens.add_column(sa.Column("rotated_at_s", sa.Double(), nullable=True))
        tokens.add_column(sa.Column("last_used_at_s", sa.Double(), nullable=True))
        tokens.drop_constraint("token_role", type_="check")
        tokens.create_check_constraint("token_role", _ROLES)
        tokens.create_unique_constraint("tokens_previous_sha256_key", ["previous_sha256"])
        tokens.create_foreign_key("tokens_account_id_fkey", "accounts", ["account_id"], ["account_id"])
    op.execute("UPDATE tokens SET account_id = token_id")
    with op.batch_alter_table("tokens") as tokens:
        tokens.alter_column("account_id", existing_type=sa.String(length=64), nullable=False)
    op.create_index("ix_tokens_account_id", "tokens", ["account_id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_tokens_account_id", table_name="tokens")
    # The version before knows no administrators of a project: a submitter is the most that it has there.
    op.execute("UPDATE tokens SET role = 'submitter' WHERE role = 'project-admin'")
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_constraint("tokens_account_id_fkey", type_="foreignkey")
        tokens.drop_constraint("tokens_previous_sha256_key", type_="unique")
        tokens.drop_constraint("token_role", type_="check")
        tokens.create_check_constraint("token_role", _ROLES_BEFORE)
        for column in ("account_id", "previous_sha256", "previous_until_s", "rotated_at_s", "last_used_at_s"):
            tokens.drop_column(column)
    op.drop_index("ix_roles_project", table_name="roles")
    op.drop_table("roles")
    op.drop_table("accounts")
