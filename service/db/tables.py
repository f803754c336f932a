"""Every table. Times are epoch seconds (UTC) in doubles, sizes SI units; no ORM row leaves `service/db`.

Every row has a `project`. Rows that all projects share (regions, nodes, links, prices) have project `*`. What
must never be true is forbidden by constraints here, not only by code.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SHARED_PROJECT = "*"

Id = String(64)
Name = String(63)
# SQLite gives only INTEGER PRIMARY KEY an automatic value.
Sequence = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """Root of the tables."""

    type_annotation_map = {float: Double, dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012 - SQLAlchemy's API


class ProjectRow(Base):
    """A tenant. `share` is its weight against the others', for policies that keep shares; None: it has none. Quotas
    are what it may hold at once and spend in a calendar month (UTC); None: as much as there is."""

    __tablename__ = "projects"
    project: Mapped[str] = mapped_column(Name, primary_key=True)
    created_at_s: Mapped[float]
    share: Mapped[float | None]
    quota_gpus: Mapped[int | None]
    quota_usd_per_month: Mapped[float | None]
    __table_args__ = (
        CheckConstraint("share >= 0", name="project_share"),
        CheckConstraint("quota_gpus >= 0", name="project_quota_gpus"),
        CheckConstraint("quota_usd_per_month >= 0", name="project_quota_usd"),
    )


class AccountRow(Base):
    """A person or a program. `project` is whose administrators may change it: `*` for the platform's alone."""

    __tablename__ = "accounts"
    account_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name, unique=True)
    kind: Mapped[str] = mapped_column(String(8))
    created_at_s: Mapped[float]
    disabled_at_s: Mapped[float | None]
    __table_args__ = (CheckConstraint("kind IN ('user', 'service')", name="account_kind"),)


class RoleRow(Base):
    """What an account may do in a project (`*`: in all of them)."""

    __tablename__ = "roles"
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.account_id"), primary_key=True)
    project: Mapped[str] = mapped_column(Name, primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(16))
    __table_args__ = (
        CheckConstraint(
            "(project = '*' AND role IN ('admin', 'viewer', 'agent'))"
            " OR (project <> '*' AND role IN ('project-admin', 'submitter', 'viewer'))",
            name="role_in_project",
        ),
    )


class TokenRow(Base):
    """A bearer token of an account, for one of its roles or less. Only SHA-256 of secrets are here; `prefix` is shown
    in lists. A rotation leaves the secret before valid until `previous_until_s`."""

    __tablename__ = "tokens"
    token_id: Mapped[str] = mapped_column(Id, primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.account_id"), index=True)
    project: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    role: Mapped[str] = mapped_column(String(16))
    prefix: Mapped[str] = mapped_column(String(16))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at_s: Mapped[float]
    expires_at_s: Mapped[float | None]
    revoked_at_s: Mapped[float | None]
    previous_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    previous_until_s: Mapped[float | None]
    rotated_at_s: Mapped[float | None]
    last_used_at_s: Mapped[float | None]
    """To a few minutes: it is not written with every request."""
    single_use: Mapped[bool] = mapped_column(Boolean, default=False)
    """It lets one agent join, in `region` if one is named."""
    region: Mapped[str | None] = mapped_column(Name)
    agent_id: Mapped[str | None] = mapped_column(Id, index=True)
    """The agent that has used it, if it is for single use; else the agent whose identity it is."""
    __table_args__ = (
        CheckConstraint(
            "role IN ('admin', 'project-admin', 'submitter', 'viewer', 'agent')", name="token_role"
        ),
    )


class RegionRow(Base):
    __tablename__ = "regions"
    region: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    pue: Mapped[float]
    uplink_bps: Mapped[float | None]
    downlink_bps: Mapped[float | None]
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (CheckConstraint("pue >= 1", name="region_pue"),)


class GpuTypeRow(Base):
    """What the agents of a type reported last; `sustained_flops` of a pool is the least of its nodes."""

    __tablename__ = "gpu_types"
    gpu_type: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    memory_bytes: Mapped[float]
    power_w: Mapped[float]
    idle_w: Mapped[float]
    intra_region_bps: Mapped[float]
    version: Mapped[int] = mapped_column(default=1)


class PoolRow(Base):
    """The GPUs of one type in one region: owned, or rented at the `rent` price series."""

    __tablename__ = "pools"
    region: Mapped[str] = mapped_column(ForeignKey("regions.region"), primary_key=True)
    gpu_type: Mapped[str] = mapped_column(ForeignKey("gpu_types.gpu_type"), primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    ownership: Mapped[str] = mapped_column(String(8), default="owned")
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (CheckConstraint("ownership IN ('owned', 'rented')", name="pool_ownership"),)


class AgentRow(Base):
    __tablename__ = "agents"
    agent_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.token_id"))
    agent_version: Mapped[str] = mapped_column(String(64))
    boot_id: Mapped[str | None] = mapped_column(Id)
    reports_stored: Mapped[int] = mapped_column(BigInteger, default=0)
    clock_offset_s: Mapped[float] = mapped_column(default=0.0)
    joined_at_s: Mapped[float]
    heartbeat_at_s: Mapped[float]
    revoked_at_s: Mapped[float | None]
    """It opens nothing any more, until it joins with a token made for that."""
    measures_links: Mapped[bool] = mapped_column(Boolean, default=False)
    """Whether it said so with its last heartbeat."""


class NodeRow(Base):
    """A host. `state`: ready | cordoned | lost. Liveness is the agent's heartbeat by the server's clock."""

    __tablename__ = "nodes"
    node_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    agent_id: Mapped[str] = mapped_column(ForeignKey("agents.agent_id"), index=True)
    region: Mapped[str] = mapped_column(ForeignKey("regions.region"))
    gpu_type: Mapped[str] = mapped_column(ForeignKey("gpu_types.gpu_type"))
    gpus: Mapped[int]
    address: Mapped[str] = mapped_column(String(255))
    interface: Mapped[str | None] = mapped_column(String(64))
    port_first: Mapped[int]
    port_last: Mapped[int]
    sustained_flops: Mapped[float]
    measured_at_s: Mapped[float]
    state: Mapped[str] = mapped_column(String(16), default="ready")
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        CheckConstraint("state IN ('ready', 'cordoned', 'lost')", name="node_state"),
        CheckConstraint("gpus > 0", name="node_gpus"),
        Index("nodes_by_address", "address"),
    )


class LinkRow(Base):
    """What an operator says of a directed link. `capacity_bps` is a limit, or his estimate; `measuring` is what agents
    may measure of it (None: what the server's settings say)."""

    __tablename__ = "links"
    src: Mapped[str] = mapped_column(ForeignKey("regions.region"), primary_key=True)
    dst: Mapped[str] = mapped_column(ForeignKey("regions.region"), primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    capacity_bps: Mapped[float]
    latency_s: Mapped[float]
    version: Mapped[int] = mapped_column(default=1)
    capacity_is_limit: Mapped[bool] = mapped_column(Boolean, default=True)
    measuring: Mapped[str | None] = mapped_column(String(16))
    __table_args__ = (
        CheckConstraint("src <> dst", name="link_ends"),
        CheckConstraint("capacity_bps >= 0 AND latency_s >= 0", name="link_figures"),
        CheckConstraint("measuring IN ('off', 'latency', 'bandwidth')", name="link_measuring"),
    )


class LinkTestRow(Base):
    """A measurement of a link by an agent at each of its ends: asked for, open once the far one listens, ended.

    `token` is what the two know each other by, gone with the end. `sent_bytes` is what it may send until it is known
    what it has sent.
    """

    __tablename__ = "link_tests"
    test_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    src: Mapped[str] = mapped_column(Name)
    dst: Mapped[str] = mapped_column(Name)
    kind: Mapped[str] = mapped_column(String(16))
    from_agent: Mapped[str] = mapped_column(Id)
    to_agent: Mapped[str] = mapped_column(Id)
    address: Mapped[str] = mapped_column(String(255))
    """Of the node in dst that listens."""
    port: Mapped[int]
    token: Mapped[str | None] = mapped_column(String(128))
    max_bytes: Mapped[int] = mapped_column(BigInteger)
    max_s: Mapped[float]
    asked_at_s: Mapped[float]
    opened_at_s: Mapped[float | None]
    ended_at_s: Mapped[float | None]
    outcome: Mapped[str | None] = mapped_column(String(16))
    latency_s: Mapped[float | None]
    bandwidth_bps: Mapped[float | None]
    is_floor: Mapped[bool] = mapped_column(Boolean, default=False)
    sent_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    detail: Mapped[str | None] = mapped_column(String(255))
    __table_args__ = (
        CheckConstraint("kind IN ('latency', 'bandwidth')", name="link_test_kind"),
        CheckConstraint("outcome IN ('done', 'failed', 'broken-off', 'timed-out')", name="link_test_outcome"),
        CheckConstraint("(ended_at_s IS NULL) = (outcome IS NULL)", name="link_test_end"),
        Index("link_tests_of_link", "src", "dst", "kind", "asked_at_s"),
        Index("link_tests_by_end", "ended_at_s"),
    )


class LinkEstimateRow(Base):
    """What the last measurements of a link come to, and what of it planning goes by (None: what the operator said)."""

    __tablename__ = "link_estimates"
    src: Mapped[str] = mapped_column(Name, primary_key=True)
    dst: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    latency_s: Mapped[float | None]
    latency_at_s: Mapped[float | None]
    bandwidth_bps: Mapped[float | None]
    bandwidth_at_s: Mapped[float | None]
    used_latency_s: Mapped[float | None]
    used_bandwidth_bps: Mapped[float | None]


class PriceSeriesRow(Base):
    """What a series of prices means. `dst` only for egress (region → dst), `gpu_type` only for rent."""

    __tablename__ = "price_series"
    series_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    kind: Mapped[str] = mapped_column(String(16))
    region: Mapped[str] = mapped_column(ForeignKey("regions.region"))
    gpu_type: Mapped[str] = mapped_column(Name, default="")
    dst: Mapped[str] = mapped_column(Name, default="")
    unit: Mapped[str] = mapped_column(String(32))
    currency: Mapped[str] = mapped_column(String(3))
    source: Mapped[str] = mapped_column(String(255))
    __table_args__ = (
        UniqueConstraint("kind", "region", "gpu_type", "dst", name="price_series_subject"),
        CheckConstraint("kind IN ('electricity', 'rent', 'egress', 'carbon')", name="price_kind"),
    )


class PricePointRow(Base):
    """One value, valid from a moment until the next point of its series, known from `known_at_s`.

    A correction is a new row with a later `known_at_s`; nothing is overwritten.
    """

    __tablename__ = "price_points"
    point_id: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    series_id: Mapped[str] = mapped_column(ForeignKey("price_series.series_id"))
    valid_from_s: Mapped[float]
    known_at_s: Mapped[float]
    value: Mapped[float]
    __table_args__ = (UniqueConstraint("series_id", "valid_from_s", "known_at_s", name="price_point_once"),)


class JobRow(Base):
    """A job: `spec` as asked for and completed, and where it is in its life."""

    __tablename__ = "jobs"
    job_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("projects.project"))
    name: Mapped[str] = mapped_column(Name)
    submitted_by: Mapped[str] = mapped_column(Id)
    spec: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16))
    priority: Mapped[int]
    submitted_at_s: Mapped[float]
    first_started_at_s: Mapped[float | None]
    finished_at_s: Mapped[float | None]
    declared_steps: Mapped[int] = mapped_column(BigInteger)
    reported_steps: Mapped[int] = mapped_column(BigInteger, default=0)
    checkpoint_step: Mapped[int] = mapped_column(BigInteger, default=0)
    checkpoint_uri: Mapped[str | None] = mapped_column(Text)
    checkpoint_regions: Mapped[list[Any]] = mapped_column(default=list)
    generation: Mapped[int] = mapped_column(default=0)
    """Of the last allocation; 0 before the first."""
    retries: Mapped[int] = mapped_column(default=0)
    not_before_s: Mapped[float] = mapped_column(default=0.0)
    """Back-off: the job is not planned before."""
    cancel_requested: Mapped[bool] = mapped_column(Boolean, default=False)
    stop_cause: Mapped[str | None] = mapped_column(String(64))
    """Why it is STOPPING, hence where it goes from there."""
    reasons: Mapped[list[Any]] = mapped_column(default=list)
    """Why it waits, or why it failed: Reason documents."""
    queue_position: Mapped[int | None]
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        # In the order in which they are listed.
        Index("jobs_by_time", "submitted_at_s", "job_id"),
        Index("jobs_by_state", "state", "submitted_at_s", "job_id"),
        Index("jobs_by_project", "project", "submitted_at_s", "job_id"),
        Index("jobs_by_project_and_state", "project", "state", "submitted_at_s", "job_id"),
        Index("jobs_by_end", "finished_at_s"),
    )


class AllocationRow(Base):
    """A committed placement of one generation of a job. Its GPUs and bandwidth are held until it has ended."""

    __tablename__ = "allocations"
    allocation_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"))
    generation: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    placement: Mapped[dict[str, Any]]
    why: Mapped[str] = mapped_column(Text, default="")
    transfers: Mapped[list[Any]] = mapped_column(default=list)
    """State that travels to where its stages stand; its bandwidth is held until all of them are up."""
    predicted_iteration_s: Mapped[float]
    first_step: Mapped[int] = mapped_column(BigInteger)
    """The step from which this generation goes on (the checkpoint's + 1)."""
    master_address: Mapped[str] = mapped_column(String(255))
    master_port: Mapped[int]
    epoch: Mapped[int] = mapped_column(BigInteger)
    """Of the leader that committed it."""
    created_at_s: Mapped[float]
    running_at_s: Mapped[float | None]
    ended_at_s: Mapped[float | None]
    billed_until_s: Mapped[float | None]
    stop_cause: Mapped[str | None] = mapped_column(String(64))
    """Why it was told to stop; None where its job came to its own end."""
    stop_why: Mapped[str | None] = mapped_column(Text)
    """The same in a sentence, where a plan stopped it."""
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        UniqueConstraint("job_id", "generation", name="allocation_generation"),
        Index(
            "one_live_allocation_a_job",
            "job_id",
            unique=True,
            sqlite_where=text("state <> 'ended'"),
            postgresql_where=text("state <> 'ended'"),
        ),
        # The last port used at an address, at every start.
        Index("allocations_by_master", "master_address", "created_at_s", "allocation_id"),
    )


class PromiseRow(Base):
    """A start or move that a plan has decided and that begins when what it needs has been left by jobs that stop.

    `seq` is the order of their rights. The row goes when the job's next generation is committed, or when the promise
    cannot be kept any more; a job in a final state has none.
    """

    __tablename__ = "promises"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"), unique=True)
    kind: Mapped[str] = mapped_column(String(8))
    generation: Mapped[int]
    """The one that will begin."""
    placement: Mapped[dict[str, Any]]
    transfers: Mapped[list[Any]]
    predicted_iteration_s: Mapped[float]
    why: Mapped[str] = mapped_column(Text)
    snapshot_version: Mapped[int] = mapped_column(BigInteger)
    """Of the plan that made it."""
    epoch: Mapped[int] = mapped_column(BigInteger)
    """Of the leader that made it; whoever leads keeps it."""
    made_at_s: Mapped[float]
    __table_args__ = (CheckConstraint("kind IN ('start', 'move')", name="promise_kind"),)


class ProcessRow(Base):
    """One rank of an allocation: a process that an agent must run. `launch` is its StageProcess document."""

    __tablename__ = "processes"
    key: Mapped[str] = mapped_column(String(191), primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), index=True)
    job_id: Mapped[str] = mapped_column(Id)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.node_id"))
    rank: Mapped[int]
    stage: Mapped[int]
    region: Mapped[str] = mapped_column(Name)
    launch: Mapped[dict[str, Any]]
    desired: Mapped[bool] = mapped_column(Boolean, default=True)
    state: Mapped[str] = mapped_column(String(16), default="pending")
    """pending, or a ProcessState of the protocol; `lost` with its node."""
    exit_code: Mapped[int | None]
    cause: Mapped[str | None] = mapped_column(String(64))
    detail: Mapped[str | None] = mapped_column(Text)
    last_lines: Mapped[list[Any]] = mapped_column(default=list)
    busy_fraction: Mapped[float | None]
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        Index("processes_of_node", "node_id", "desired"),
        UniqueConstraint("allocation_id", "rank", name="process_rank"),
    )


class HeldGpuRow(Base):
    """A GPU that a live allocation holds. The key makes a second promise of it impossible."""

    __tablename__ = "held_gpus"
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.node_id"), primary_key=True)
    gpu_index: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), index=True)


class HeldPortRow(Base):
    """The rendezvous port of a live allocation on the node of its rank 0."""

    __tablename__ = "held_ports"
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.node_id"), primary_key=True)
    port: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), index=True)


class HeldLinkRow(Base):
    """Bandwidth that a live allocation holds on a directed link."""

    __tablename__ = "held_links"
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), primary_key=True)
    src: Mapped[str] = mapped_column(Name, primary_key=True)
    dst: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    bandwidth_bps: Mapped[float]
    __table_args__ = (Index("held_links_by_link", "src", "dst"),)


class StepRow(Base):
    """The reported series: one row a step, whatever was run again after a restart (the last generation's)."""

    __tablename__ = "steps"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"), primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    project: Mapped[str] = mapped_column(Name)
    generation: Mapped[int]
    loss: Mapped[float | None]
    step_time_s: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)
    at_s: Mapped[float]
    grad_norm: Mapped[float | None]
    compute_s: Mapped[float | None]
    send_s: Mapped[float | None]
    drift: Mapped[int | None] = mapped_column(BigInteger)
    drift_bound: Mapped[int | None] = mapped_column(BigInteger)
    rolled_back: Mapped[int | None] = mapped_column(BigInteger)


class StepSeriesRow(Base):
    """What a job's steps come to; written with them, so that a list of jobs reads one row a job."""

    __tablename__ = "step_series"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"), primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    first_step: Mapped[int] = mapped_column(BigInteger)
    """Of all generations; the others are of the newest that has reported any."""
    first_loss: Mapped[float | None]
    generation: Mapped[int]
    from_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    last_loss: Mapped[float | None]
    last_grad_norm: Mapped[float | None]
    iteration_s: Mapped[float]
    """The median of `recent_s`."""
    recent_s: Mapped[list[Any]]
    """What its last steps took, the newest last; the generation's first, a warm-up, only if alone."""
    drift: Mapped[int | None] = mapped_column(BigInteger)
    """The largest of any step."""
    drift_bound: Mapped[int | None] = mapped_column(BigInteger)
    rolled_back: Mapped[int | None] = mapped_column(BigInteger)


class LogRow(Base):
    """A line of a process's log. `line` is its number in that process's log, so that nothing stands twice."""

    __tablename__ = "logs"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"))
    key: Mapped[str] = mapped_column(String(191))
    stage: Mapped[int]
    line: Mapped[int] = mapped_column(BigInteger)
    text: Mapped[str] = mapped_column(Text)
    at_s: Mapped[float]
    __table_args__ = (
        UniqueConstraint("key", "line", name="log_line_once"),
        Index("logs_of_job", "job_id", "seq"),
    )


class EventRow(Base):
    """The outbox and the history: every transition and every change, in commit order of `seq`."""

    __tablename__ = "events"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    at_s: Mapped[float]
    kind: Mapped[str] = mapped_column(String(64))
    """`job.submitted`, `job.running`, `node.lost`, … : object and what happened."""
    object_kind: Mapped[str] = mapped_column(String(16))
    object_id: Mapped[str] = mapped_column(Id)
    actor: Mapped[str] = mapped_column(Id, default="")
    data: Mapped[dict[str, Any]]
    __table_args__ = (Index("events_of_object", "object_kind", "object_id", "seq"),)


class LedgerRow(Base):
    """What an allocation cost, with the price used. Append-only: no row is ever changed or removed."""

    __tablename__ = "ledger"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(Id, index=True)
    allocation_id: Mapped[str] = mapped_column(Id)
    kind: Mapped[str] = mapped_column(String(16))
    region: Mapped[str] = mapped_column(Name)
    dst: Mapped[str] = mapped_column(Name, default="")
    gpu_type: Mapped[str] = mapped_column(Name, default="")
    from_s: Mapped[float]
    to_s: Mapped[float]
    quantity: Mapped[float]
    unit: Mapped[str] = mapped_column(String(16))
    """kWh, GPU-hour or GB."""
    price: Mapped[float | None]
    """USD per unit; None while no price is known for the interval (amount is then 0 and `price_source` says so)."""
    price_source: Mapped[str] = mapped_column(String(255))
    amount_usd: Mapped[float]
    __table_args__ = (
        UniqueConstraint("allocation_id", "kind", "region", "dst", "gpu_type", "from_s", name="billed_once"),
    )


class AuditRow(Base):
    """One request that changed something or was denied, or `count` like denials. Append-only until it is pruned."""

    __tablename__ = "audit"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    """Of the caller, or of what an administrator changed."""
    at_s: Mapped[float]
    last_at_s: Mapped[float]
    """Of the last of `count`."""
    count: Mapped[int] = mapped_column(BigInteger)
    account: Mapped[str] = mapped_column(Name)
    """Empty where nobody was recognised."""
    token_id: Mapped[str] = mapped_column(Id)
    action: Mapped[str] = mapped_column(String(255))
    """Method and route."""
    path: Mapped[str] = mapped_column(String(255))
    object_kind: Mapped[str] = mapped_column(String(16))
    object_id: Mapped[str] = mapped_column(Id)
    """What was changed (the first of several)."""
    outcome: Mapped[str] = mapped_column(String(8))
    code: Mapped[str] = mapped_column(String(64))
    """Of the problem, if there was one."""
    address: Mapped[str] = mapped_column(String(255))
    trace_id: Mapped[str] = mapped_column(String(64))
    __table_args__ = (
        CheckConstraint("outcome IN ('done', 'denied', 'refused', 'failed')", name="audit_outcome"),
        Index("audit_of_project", "project", "seq"),
        Index("audit_by_age", "last_at_s"),
    )


class JobSpendingRow(Base):
    """The sum of the ledger's rows of a job by kind and region; written with them. `unpriced` of them have no price."""

    __tablename__ = "job_spending"
    job_id: Mapped[str] = mapped_column(Id, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    region: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    quantity: Mapped[float]
    amount_usd: Mapped[float]
    unpriced: Mapped[int] = mapped_column(BigInteger)


class MonthlySpendingRow(Base):
    """The sum of the ledger's rows of a project that begin in a month (UTC); written with them."""

    __tablename__ = "monthly_spending"
    project: Mapped[str] = mapped_column(Name, primary_key=True)
    month: Mapped[str] = mapped_column(String(7), primary_key=True)
    amount_usd: Mapped[float]


class IdempotencyRow(Base):
    """What a POST with an Idempotency-Key was answered."""

    __tablename__ = "idempotency_keys"
    project: Mapped[str] = mapped_column(Name, primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(Id)
    created_at_s: Mapped[float]


class LeaderRow(Base):
    """Who runs the control loops. `epoch` grows with every new leader and guards every write of the loops."""

    __tablename__ = "leader"
    id: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)
    holder: Mapped[str] = mapped_column(Id, default="")
    expires_at_s: Mapped[float] = mapped_column(default=0.0)
    snapshot_version: Mapped[int] = mapped_column(BigInteger, default=0)
    """Grows with every change that planning looks at; a plan made against another one is stale."""
    __table_args__ = (CheckConstraint("id = 1", name="one_leader_row"),)
