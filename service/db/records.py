"""Rows as values: what leaves `service/db`. Fields are the columns of `tables`, whose docstrings say more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AccountRecord:
    account_id: str
    project: str
    name: str
    kind: str
    created_at_s: float
    disabled_at_s: float | None


@dataclass(frozen=True, slots=True)
class RoleRecord:
    account_id: str
    project: str
    role: str


@dataclass(frozen=True, slots=True)
class TokenRecord:
    token_id: str
    account_id: str
    project: str
    name: str
    role: str
    prefix: str
    sha256: str
    created_at_s: float
    expires_at_s: float | None
    revoked_at_s: float | None
    previous_sha256: str | None = None
    previous_until_s: float | None = None
    rotated_at_s: float | None = None
    last_used_at_s: float | None = None
    single_use: bool = False
    region: str | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class ProjectRecord:
    project: str
    created_at_s: float
    share: float | None
    quota_gpus: int | None = None
    quota_usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    gpus: int | None
    usd_per_month: float | None


@dataclass(frozen=True, slots=True)
class RegionRecord:
    region: str
    pue: float
    uplink_bps: float | None
    downlink_bps: float | None
    version: int


@dataclass(frozen=True, slots=True)
class GpuTypeRecord:
    gpu_type: str
    memory_bytes: float
    power_w: float
    idle_w: float
    intra_region_bps: float
    version: int


@dataclass(frozen=True, slots=True)
class PoolRecord:
    region: str
    gpu_type: str
    ownership: str
    version: int


@dataclass(frozen=True, slots=True)
class AgentRecord:
    agent_id: str
    token_id: str
    agent_version: str
    boot_id: str | None
    reports_stored: int
    clock_offset_s: float
    joined_at_s: float
    heartbeat_at_s: float
    revoked_at_s: float | None = None
    measures_links: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    node_id: str
    agent_id: str
    region: str
    gpu_type: str
    gpus: int
    address: str
    interface: str | None
    port_first: int
    port_last: int
    sustained_flops: float
    measured_at_s: float
    state: str
    version: int


@dataclass(frozen=True, slots=True)
class LinkRecord:
    src: str
    dst: str
    capacity_bps: float
    latency_s: float
    version: int
    capacity_is_limit: bool = True
    measuring: str | None = None


@dataclass(frozen=True, slots=True)
class LinkTestRecord:
    test_id: str
    src: str
    dst: str
    kind: str
    from_agent: str
    to_agent: str
    address: str
    port: int
    token: str | None
    max_bytes: int
    max_s: float
    asked_at_s: float
    opened_at_s: float | None = None
    ended_at_s: float | None = None
    outcome: str | None = None
    latency_s: float | None = None
    bandwidth_bps: float | None = None
    is_floor: bool = False
    sent_bytes: int = 0
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class LinkEstimateRecord:
    src: str
    dst: str
    latency_s: float | None = None
    latency_at_s: float | None = None
    bandwidth_bps: float | None = None
    bandwidth_at_s: float | None = None
    used_latency_s: float | None = None
    used_bandwidth_bps: float | None = None


@dataclass(frozen=True, slots=True)
class SeriesRecord:
    series_id: str
    kind: str
    region: str
    gpu_type: str
    dst: str
    unit: str
    currency: str
    source: str


@dataclass(frozen=True, slots=True)
class PointRecord:
    point_id: int
    series_id: str
    valid_from_s: float
    known_at_s: float
    value: float


@dataclass(frozen=True, slots=True)
class JobRecord:
    job_id: str
    project: str
    name: str
    submitted_by: str
    spec: dict[str, Any]
    state: str
    priority: int
    submitted_at_s: float
    first_started_at_s: float | None
    finished_at_s: float | None
    declared_steps: int
    reported_steps: int
    checkpoint_step: int
    checkpoint_uri: str | None
    checkpoint_regions: list[Any]
    generation: int
    retries: int
    not_before_s: float
    cancel_requested: bool
    stop_cause: str | None
    reasons: list[Any]
    queue_position: int | None
    version: int


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    allocation_id: str
    project: str
    job_id: str
    generation: int
    state: str
    placement: dict[str, Any]
    why: str
    transfers: list[Any]
    predicted_iteration_s: float
    first_step: int
    master_address: str
    master_port: int
    epoch: int
    created_at_s: float
    running_at_s: float | None
    ended_at_s: float | None
    billed_until_s: float | None
    stop_cause: str | None
    stop_why: str | None
    version: int


@dataclass(frozen=True, slots=True)
class PromiseRecord:
    seq: int
    project: str
    job_id: str
    kind: str
    generation: int
    placement: dict[str, Any]
    transfers: list[Any]
    predicted_iteration_s: float
    why: str
    snapshot_version: int
    epoch: int
    made_at_s: float


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    key: str
    project: str
    allocation_id: str
    job_id: str
    node_id: str
    rank: int
    stage: int
    region: str
    launch: dict[str, Any]
    desired: bool
    state: str
    exit_code: int | None
    cause: str | None
    detail: str | None
    last_lines: list[Any]
    busy_fraction: float | None
    version: int


@dataclass(frozen=True, slots=True)
class HeldGpuRecord:
    node_id: str
    gpu_index: int
    project: str
    allocation_id: str


@dataclass(frozen=True, slots=True)
class HeldPortRecord:
    node_id: str
    port: int
    project: str
    allocation_id: str


@dataclass(frozen=True, slots=True)
class HeldLinkRecord:
    allocation_id: str
    src: str
    dst: str
    project: str
    bandwidth_bps: float


@dataclass(frozen=True, slots=True)
class StepRecord:
    job_id: str
    step: int
    project: str
    generation: int
    loss: float | None
    step_time_s: float
    tokens: int
    at_s: float
    grad_norm: float | None
    compute_s: float | None
    send_s: float | None
    drift: int | None
    drift_bound: int | None
    rolled_back: int | None


@dataclass(frozen=True, slots=True)
class StepSeriesRecord:
    job_id: str
    project: str
    first_step: int
    first_loss: float | None
    generation: int
    from_step: int
    last_step: int
    last_loss: float | None
    last_grad_norm: float | None
    iteration_s: float
    recent_s: list[float]
    drift: int | None
    drift_bound: int | None
    rolled_back: int | None


@dataclass(frozen=True, slots=True)
class LogRecord:
    seq: int
    project: str
    job_id: str
    key: str
    stage: int
    line: int
    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class EventRecord:
    seq: int
    project: str
    at_s: float
    kind: str
    object_kind: str
    object_id: str
    actor: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    seq: int
    project: str
    job_id: str
    allocation_id: str
    kind: str
    region: str
    dst: str
    gpu_type: str
    from_s: float
    to_s: float
    quantity: float
    unit: str
    price: float | None
    price_source: str
    amount_usd: float


@dataclass(frozen=True, slots=True)
class AuditRecord:
    seq: int
    project: str
    at_s: float
    last_at_s: float
    count: int
    account: str
    token_id: str
    action: str
    path: str
    object_kind: str
    object_id: str
    outcome: str
    code: str
    address: str
    trace_id: str


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    project: str
    key: str
    fingerprint: str
    job_id: str
    created_at_s: float


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    epoch: int
    holder: str
    expires_at_s: float
    snapshot_version: int
