"""Indexes in the order in which jobs are listed: of all, of a project, in a state, and in a state of a project."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("jobs_by_state", table_name="jobs")
    op.create_index("jobs_by_state", "jobs", ["state", "submitted_at_s", "job_id"], unique=False)
    op.create_index("jobs_by_time", "jobs", ["submitted_at_s", "job_id"], unique=False)
    op.create_index(
        "jobs_by_project_and_state", "jobs", ["project", "state", "submitted_at_s", "job_id"], unique=False
    )


def downgrade() -> None:
    op.drop_index("jobs_by_project_and_state", table_name="jobs")
    op.drop_index("jobs_by_time", table_name="jobs")
    op.drop_index("jobs_by_state", table_name="jobs")
    op.create_index("jobs_by_state", "jobs", ["state", "submitted_at_s"], unique=False)
