"""The first tables, and the one row of the leader."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("object_kind", sa.String(length=16), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("events_of_object", "events", ["object_kind", "object_id", "seq"], unique=False)
    op.create_table(
        "gpu_types",
        sa.Column("gpu_type", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("memory_bytes", sa.Double(), nullable=False),
        sa.Column("power_w", sa.Double(), nullable=False),
        sa.Column("idle_w", sa.Double(), nullable=False),
        sa.Column("intra_region_bps", sa.Double(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("gpu_type"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project", "key"),
    )
    op.create_table(
        "leader",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.Column("expires_at_s", sa.Double(), nullable=False),
        sa.Column("snapshot_version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name="one_leader_row"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "ledger",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("dst", sa.String(length=63), nullable=False),
        sa.Column("gpu_type", sa.String(length=63), nullable=False),
        sa.Column("from_s", sa.Double(), nullable=False),
        sa.Column("to_s", sa.Double(), nullable=False),
        sa.Column("quantity", sa.Double(), nullable=False),
        sa.Column("unit", sa.String(length=16), nullable=False),
        sa.Column("price", sa.Double(), nullable=True),
        sa.Column("price_source", sa.String(length=255), nullable=False),
        sa.Column("amount_usd", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint(
            "allocation_id", "kind", "region", "dst", "gpu_type", "from_s", name="billed_once"
        ),
    )
    op.create_index(op.f("ix_ledger_job_id"), "ledger", ["job_id"], unique=False)
    op.create_table(
        "projects",
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project"),
    )
    op.create_table(
        "regions",
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("pue", sa.Double(), nullable=False),
        sa.Column("uplink_bps", sa.Double(), nullable=True),
        sa.Column("downlink_bps", sa.Double(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint("pue >= 1", name="region_pue"),
        sa.PrimaryKeyConstraint("region"),
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.Column("expires_at_s", sa.Double(), nullable=True),
        sa.Column("revoked_at_s", sa.Double(), nullable=True),
        sa.CheckConstraint("role IN ('admin', 'submitter', 'viewer', 'agent')", name="token_role"),
        sa.PrimaryKeyConstraint("token_id"),
        sa.UniqueConstraint("sha256"),
    )
    op.create_table(
        "agents",
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("token_id", sa.String(length=64), nullable=False),
        sa.Column("agent_version", sa.String(length=64), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=True),
        sa.Column("reports_stored", sa.BigInteger(), nullable=False),
        sa.Column("clock_offset_s", sa.Double(), nullable=False),
        sa.Column("joined_at_s", sa.Double(), nullable=False),
        sa.Column("heartbeat_at_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"],
            ["tokens.token_id"],
        ),
        sa.PrimaryKeyConstraint("agent_id"),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("submitted_by", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("submitted_at_s", sa.Double(), nullable=False),
        sa.Column("first_started_at_s", sa.Double(), nullable=True),
        sa.Column("finished_at_s", sa.Double(), nullable=True),
        sa.Column("declared_steps", sa.BigInteger(), nullable=False),
        sa.Column("reported_steps", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_step", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_uri", sa.Text(), nullable=True),
        sa.Column("checkpoint_regions", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("not_before_s", sa.Double(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("stop_cause", sa.String(length=64), nullable=True),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("queue_position", sa.Integer(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project"],
            ["projects.project"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("jobs_by_project", "jobs", ["project", "submitted_at_s", "job_id"], unique=False)
    op.create_index("jobs_by_state", "jobs", ["state", "submitted_at_s"], unique=False)
    op.create_table(
        "links",
        sa.Column("src", sa.String(length=63), nullable=False),
        sa.Column("dst", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("capacity_bps", sa.Double(), nullable=False),
        sa.Column("latency_s", sa.Double(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint("capacity_bps >= 0 AND latency_s >= 0", name="link_figures"),
        sa.CheckConstraint("src <> dst", name="link_ends"),
        sa.ForeignKeyConstraint(
            ["dst"],
            ["regions.region"],
        ),
        sa.ForeignKeyConstraint(
            ["src"],
            ["regions.region"],
        ),
        sa.PrimaryKeyConstraint("src", "dst"),
    )
    op.create_table(
        "pools",
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("gpu_type", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("ownership", sa.String(length=8), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint("ownership IN ('owned', 'rented')", name="pool_ownership"),
        sa.ForeignKeyConstraint(
            ["gpu_type"],
            ["gpu_types.gpu_type"],
        ),
        sa.ForeignKeyConstraint(
            ["region"],
            ["regions.region"],
        ),
        sa.PrimaryKeyConstraint("region", "gpu_type"),
    )
    op.create_table(
        "price_series",
        sa.Column("series_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("gpu_type", sa.String(length=63), nullable=False),
        sa.Column("dst", sa.String(length=63), nullable=False),
        sa.Column("unit", sa.String(length=32), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("source", sa.String(length=255), nullable=False),
        sa.CheckConstraint("kind IN ('electricity', 'rent', 'egress', 'carbon')", name="price_kind"),
        sa.ForeignKeyConstraint(
            ["region"],
            ["regions.region"],
        ),
        sa.PrimaryKeyConstraint("series_id"),
        sa.UniqueConstraint("kind", "region", "gpu_type", "dst", name="price_series_subject"),
    )
    op.create_table(
        "allocations",
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("placement", sa.JSON(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("predicted_iteration_s", sa.Double(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("master_address", sa.String(length=255), nullable=False),
        sa.Column("master_port", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("created_at_s", sa.Double(), nullable=False),
        sa.Column("running_at_s", sa.Double(), nullable=True),
        sa.Column("ended_at_s", sa.Double(), nullable=True),
        sa.Column("billed_until_s", sa.Double(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.job_id"],
        ),
        sa.PrimaryKeyConstraint("allocation_id"),
        sa.UniqueConstraint("job_id", "generation", name="allocation_generation"),
    )
    op.create_index(
        "one_live_allocation_a_job",
        "allocations",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("state <> 'ended'"),
        postgresql_where=sa.text("state <> 'ended'"),
    )
    op.create_table(
        "logs",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=191), nullable=False),
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.job_id"],
        ),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("key", "line", name="log_line_once"),
    )
    op.create_index("logs_of_job", "logs", ["job_id", "seq"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("gpu_type", sa.String(length=63), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("interface", sa.String(length=64), nullable=True),
        sa.Column("port_first", sa.Integer(), nullable=False),
        sa.Column("port_last", sa.Integer(), nullable=False),
        sa.Column("sustained_flops", sa.Double(), nullable=False),
        sa.Column("measured_at_s", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint("state IN ('ready', 'cordoned', 'lost')", name="node_state"),
        sa.CheckConstraint("gpus > 0", name="node_gpus"),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.agent_id"],
        ),
        sa.ForeignKeyConstraint(
            ["gpu_type"],
            ["gpu_types.gpu_type"],
        ),
        sa.ForeignKeyConstraint(
            ["region"],
            ["regions.region"],
        ),
        sa.PrimaryKeyConstraint("node_id"),
    )
    op.create_index(op.f("ix_nodes_agent_id"), "nodes", ["agent_id"], unique=False)
    op.create_table(
        "price_points",
        sa.Column(
            "point_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("series_id", sa.String(length=64), nullable=False),
        sa.Column("valid_from_s", sa.Double(), nullable=False),
        sa.Column("known_at_s", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"],
            ["price_series.series_id"],
        ),
        sa.PrimaryKeyConstraint("point_id"),
        sa.UniqueConstraint("series_id", "valid_from_s", "known_at_s", name="price_point_once"),
    )
    op.create_table(
        "steps",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("step_time_s", sa.Double(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.job_id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "step"),
    )
    op.create_table(
        "held_gpus",
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("gpu_index", sa.Integer(), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"],
            ["allocations.allocation_id"],
        ),
        sa.ForeignKeyConstraint(
            ["node_id"],
            ["nodes.node_id"],
        ),
        sa.PrimaryKeyConstraint("node_id", "gpu_index"),
    )
    op.create_index(op.f("ix_held_gpus_allocation_id"), "held_gpus", ["allocation_id"], unique=False)
    op.create_table(
        "held_links",
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("src", sa.String(length=63), nullable=False),
        sa.Column("dst", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("bandwidth_bps", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"],
            ["allocations.allocation_id"],
        ),
        sa.PrimaryKeyConstraint("allocation_id", "src", "dst"),
    )
    op.create_index("held_links_by_link", "held_links", ["src", "dst"], unique=False)
    op.create_table(
        "held_ports",
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"],
            ["allocations.allocation_id"],
        ),
        sa.ForeignKeyConstraint(
            ["node_id"],
            ["nodes.node_id"],
        ),
        sa.PrimaryKeyConstraint("node_id", "port"),
    )
    op.create_index(op.f("ix_held_ports_allocation_id"), "held_ports", ["allocation_id"], unique=False)
    op.create_table(
        "processes",
        sa.Column("key", sa.String(length=191), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=False),
        sa.Column("launch", sa.JSON(), nullable=False),
        sa.Column("desired", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("cause", sa.String(length=64), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("last_lines", sa.JSON(), nullable=False),
        sa.Column("busy_fraction", sa.Double(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["allocation_id"],
            ["allocations.allocation_id"],
        ),
        sa.ForeignKeyConstraint(
            ["node_id"],
            ["nodes.node_id"],
        ),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("allocation_id", "rank", name="process_rank"),
    )
    op.create_index(op.f("ix_processes_allocation_id"), "processes", ["allocation_id"], unique=False)
    op.create_index("processes_of_node", "processes", ["node_id", "desired"], unique=False)
    op.execute(
        "INSERT INTO leader (id, project, epoch, holder, expires_at_s, snapshot_version) VALUES (1, '*', 0, '', 0, 0)"
    )


def downgrade() -> None:
    op.drop_index("processes_of_node", table_name="processes")
    op.drop_index(op.f("ix_processes_allocation_id"), table_name="processes")
    op.drop_table("processes")
    op.drop_index(op.f("ix_held_ports_allocation_id"), table_name="held_ports")
    op.drop_table("held_ports")
    op.drop_index("held_links_by_link", table_name="held_links")
    op.drop_table("held_links")
    op.drop_index(op.f("ix_held_gpus_allocation_id"), table_name="held_gpus")
    op.drop_table("held_gpus")
    op.drop_table("steps")
    op.drop_table("price_points")
    op.drop_index(op.f("ix_nodes_agent_id"), table_name="nodes")
    op.drop_table("nodes")
    op.drop_index("logs_of_job", table_name="logs")
    op.drop_table("logs")
    op.drop_index(
        "one_live_allocation_a_job",
        table_name="allocations",
        sqlite_where=sa.text("state <> 'ended'"),
        postgresql_where=sa.text("state <> 'ended'"),
    )
    op.drop_table("allocations")
    op.drop_table("price_series")
    op.drop_table("pools")
    op.drop_table("links")
    op.drop_index("jobs_by_state", table_name="jobs")
    op.drop_index("jobs_by_project", table_name="jobs")
    op.drop_table("jobs")
    op.drop_table("agents")
    op.drop_table("tokens")
    op.drop_table("regions")
    op.drop_table("projects")
    op.drop_index(op.f("ix_ledger_job_id"), table_name="ledger")
    op.drop_table("ledger")
    op.drop_table("leader")
    op.drop_table("idempotency_keys")
    op.drop_table("gpu_types")
    op.drop_index("events_of_object", table_name="events")
    op.drop_table("events")
