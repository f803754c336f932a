"""What a list tells of each job's steps and of its bills, kept beside it: filled from what is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

RECENT_STEPS = 50
JOBS_AT_ONCE = 500
_REPORTING = sa.text(
    "SELECT job_id FROM jobs WHERE reported_steps > 0 AND job_id > :after ORDER BY job_id LIMIT :most"
)
_FIRSTS = sa.text(
    "SELECT s.job_id, s.project, s.step, s.loss FROM jobs j JOIN steps s ON s.job_id = j.job_id"
    " WHERE j.job_id IN :jobs"
    " AND s.step = (SELECT min(f.step) FROM steps f WHERE f.job_id = j.job_id)"
).bindparams(sa.bindparam("jobs", expanding=True))
_LASTS = sa.text(
    "SELECT s.job_id, s.generation, s.step, s.loss, s.step_time_s, a.first_step FROM jobs j"
    " JOIN steps s ON s.job_id = j.job_id"
    " LEFT JOIN allocations a ON a.job_id = s.job_id AND a.generation = s.generation"
    " WHERE j.job_id IN :jobs AND s.step > j.reported_steps - :recent ORDER BY s.job_id, s.step"
).bindparams(sa.bindparam("jobs", expanding=True))


def upgrade() -> None:
    series = op.create_table(
        "step_series",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("first_loss", sa.Double(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("from_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("last_loss", sa.Double(), nullable=True),
        sa.Column("iteration_s", sa.Double(), nullable=False),
        sa.Column("recent_s", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "job_spending",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("quantity", sa.Double(), nullable=False),
        sa.Column("amount_usd", sa.Double(), nullable=False),
        sa.Column("unpriced", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "kind", "region"),
    )
    op.execute(
        "INSERT INTO job_spending (job_id, kind, region, project, quantity, amount_usd, unpriced)"
        " SELECT job_id, kind, region, min(project), sum(quantity), sum(amount_usd), count(*) - count(price)"
        " FROM ledger GROUP BY job_id, kind, region"
    )
    connection = op.get_bind()
    for jobs in _reporting(connection):
        if rows := _series_of(connection, jobs):
            connection.execute(series.insert(), rows)


def downgrade() -> None:
    op.drop_table("job_spending")
    op.drop_table("step_series")


def _reporting(connection: sa.Connection) -> Iterator[Sequence[str]]:
    """Ids of jobs that have reported steps, a part at a time."""
    after = ""
    while jobs := connection.scalars(_REPORTING, {"after": after, "most": JOBS_AT_ONCE}).all():
        yield jobs
        after = jobs[-1]


def _series_of(connection: sa.Connection, jobs: Sequence[str]) -> list[dict[str, Any]]:
    lasts: dict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(_LASTS, {"jobs": jobs, "recent": RECENT_STEPS}):
        lasts[row.job_id].append(row)
    return [
        {
            "job_id": first.job_id,
            "project": first.project,
            "first_step": first.step,
            "first_loss": first.loss,
            **_of_newest_generation(lasts[first.job_id]),
        }
        for first in connection.execute(_FIRSTS, {"jobs": jobs})
        if lasts[first.job_id]
    ]


def _of_newest_generation(rows: Sequence[Any]) -> dict[str, Any]:
    generation = max(row.generation for row in rows)
    mine = [row for row in rows if row.generation == generation]
    from_step = mine[0].step if mine[0].first_step is None else mine[0].first_step
    recent_s = [row.step_time_s for row in mine if row.step > from_step or len(mine) == 1][-RECENT_STEPS:]
    return {
        "generation": generation,
        "from_step": from_step,
        "last_step": mine[-1].step,
        "last_loss": mine[-1].loss,
        "iteration_s": median(recent_s),
        "recent_s": recent_s,
    }
