"""The leader's view of the cluster as metrics: gauges from the rows, counters from what came since the last look."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from scheduler.cost import SECONDS_PER_HOUR, WATTS_PER_KILOWATT
from scheduler.snapshot import Quota
from service.capacity import GpuCount, count_gpus, used_by_node
from service.causes import BY_PLAN
from service.db import metrics_queries
from service.db.metrics_queries import BilledTotal, JobEvent
from service.db.records import LinkEstimateRecord, LinkRecord, LinkTestRecord, NodeRecord
from service.db.repositories import allocations, cluster, events, link_tests, prices, promises
from service.db.session import Session
from service.link_estimates import figures_of
from service.link_measurements import BANDWIDTH, LATENCY
from service.services import Services
from service.snapshots import quotas_of

BITS_PER_BYTE = 8.0
LATE_S = 60.0
"""A row may be committed so long after the time that it names."""
STARTED = "job.starting"
REQUEUED = "job.queued"
SUCCEEDED = "job.succeeded"
ENDS = (SUCCEEDED, "job.failed", "job.cancelled", "job.rejected")


@dataclass(frozen=True, slots=True)
class View:
    """One look at the database."""

    jobs: list[tuple[str, str, int]]
    oldest_waiting: list[tuple[str, float]]
    first_reasons: Counter[str]
    lateness: list[tuple[str, int, int, int]]
    """(project, largest drift, largest bound, updates taken back)."""
    promised: dict[str, int]
    """Jobs whose place is promised, by kind."""
    nodes: list[NodeRecord]
    gpus: dict[tuple[str, str], GpuCount]
    oldest_heartbeats: list[tuple[str, float]]
    links: list[LinkRecord]
    link_estimates: dict[tuple[str, str], LinkEstimateRecord]
    link_tests: list[LinkTestRecord]
    """Measurements that ended lately."""
    reserved_bps: dict[tuple[str, str], float]
    electricity: dict[str, tuple[float, float]]
    """Region → (price in force, since when)."""
    quotas: dict[str, Quota]
    """Of the projects that have one."""
    held_by_project: dict[str, int]
    bills: list[BilledTotal]
    moves: list[JobEvent]
    last_bill: int
    last_event: int


class Observer:
    """Looks at the database and sets the metrics. Made anew with every leadership."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._last_bill: int | None = None
        self._last_event: int | None = None
        self._began_at_s = services.clock.now()
        self._counted_tests: frozenset[str] = frozenset()
        self._spent_usd: dict[tuple[str, str, str], float] = defaultdict(float)

    async def observe(self) -> None:
        """One look."""
        now_s = self._services.clock.now()
        view = await self._services.db.read(lambda session: self._read(session, now_s))
        self._show_queue(view, now_s)
        self._show_capacity(view, now_s)
        self._show_links(view, now_s)
        self._show_quotas(view)
        self._count_bills(view)
        self._count_moves(view)
        self._last_bill, self._last_event = view.last_bill, view.last_event

    def _read(self, session: Session, now_s: float) -> View:
        nodes, used = cluster.nodes(session), used_by_node(session)
        pools = {(node.region, node.gpu_type) for node in nodes}
        last_bill, last_event = metrics_queries.last_bill(session), events.last_seq(session)
        # What happened before this instance led was counted by whoever led then.
        moved_after = last_event if self._last_event is None else self._last_event
        return View(
            jobs=metrics_queries.unfinished_by_project(session),
            oldest_waiting=metrics_queries.oldest_waiting(session),
            first_reasons=Counter(
                str(reasons[0]["code"]) for reasons in metrics_queries.reasons_of_waiting(session) if reasons
            ),
            lateness=metrics_queries.lateness_of_running(session),
            promised=promises.count_by_kind(session),
            nodes=nodes,
            gpus={
                (region, gpu_type): count_gpus(
                    (node for node in nodes if (node.region, node.gpu_type) == (region, gpu_type)), used
                )
                for region, gpu_type in sorted(pools)
            },
            oldest_heartbeats=metrics_queries.oldest_heartbeats(session),
            links=cluster.links(session),
            link_estimates=link_tests.estimates(session),
            link_tests=link_tests.ended_between(session, max(self._began_at_s, now_s - LATE_S), now_s),
            reserved_bps=allocations.reserved_bps(session),
            electricity=_electricity(session, now_s),
            quotas=quotas_of(session, now_s),
            held_by_project=allocations.held_gpus_by_project(session),
            bills=metrics_queries.billed(session, self._last_bill or 0, last_bill),
            moves=metrics_queries.job_events(session, moved_after, last_event, (STARTED, REQUEUED, *ENDS)),
            last_bill=last_bill,
            last_event=last_event,
        )

    def _show_queue(self, view: View, now_s: float) -> None:
        metrics = self._services.metrics
        metrics.queue_jobs.clear()
        for project, state, count in view.jobs:
            metrics.queue_jobs.labels(project, state).set(count)
        metrics.queue_oldest_job_age.clear()
        for project, submitted_s in view.oldest_waiting:
            metrics.queue_oldest_job_age.labels(project).set(max(0.0, now_s - submitted_s))
        metrics.unplaced_jobs.clear()
        for reason, count in view.first_reasons.items():
            metrics.unplaced_jobs.labels(reason).set(count)
        late = (metrics.training_drift, metrics.training_drift_bound, metrics.training_rolled_back)
        for gauge in late:
            gauge.clear()
        for project, *told in view.lateness:
            for gauge, value in zip(late, told, strict=True):
                gauge.labels(project).set(value)
        metrics.promised_jobs.clear()
        for kind, count in view.promised.items():
            metrics.promised_jobs.labels(kind).set(count)

    def _show_capacity(self, view: View, now_s: float) -> None:
        metrics = self._services.metrics
        metrics.nodes.clear()
        for (region, state), count in Counter((node.region, node.state) for node in view.nodes).items():
            metrics.nodes.labels(region, state).set(count)
        metrics.heartbeat_age.clear()
        for region, heard_s in view.oldest_heartbeats:
            metrics.heartbeat_age.labels(region).set(max(0.0, now_s - heard_s))
        metrics.gpus.clear()
        for (region, gpu_type), gpus in view.gpus.items():
            for state in ("used", "free", "unavailable"):
                metrics.gpus.labels(region, gpu_type, state).set(getattr(gpus, state))
        metrics.electricity_price.clear()
        metrics.electricity_price_age.clear()
        for region, (price, since_s) in view.electricity.items():
            metrics.electricity_price.labels(region).set(price)
            metrics.electricity_price_age.labels(region).set(max(0.0, now_s - since_s))

    def _show_links(self, view: View, now_s: float) -> None:
        metrics = self._services.metrics
        for gauge in (
            metrics.link_capacity,
            metrics.link_planned,
            metrics.link_reserved,
            metrics.link_measured_bandwidth,
            metrics.link_measured_latency,
            metrics.link_measurement_age,
        ):
            gauge.clear()
        for link in view.links:
            ends = (link.src, link.dst)
            estimate, reserved_bps = view.link_estimates.get(ends), view.reserved_bps.get(ends, 0.0)
            planned_bps = figures_of(link, estimate).capacity_bps
            metrics.link_capacity.labels(*ends).set(link.capacity_bps / BITS_PER_BYTE)
            metrics.link_planned.labels(*ends).set(planned_bps / BITS_PER_BYTE)
            metrics.link_reserved.labels(*ends).set(reserved_bps / BITS_PER_BYTE)
            if estimate is not None and estimate.bandwidth_bps and estimate.bandwidth_at_s is not None:
                measured = estimate.bandwidth_bps / BITS_PER_BYTE
                metrics.link_measured_bandwidth.labels(*ends).set(measured)
                age_s = max(0.0, now_s - estimate.bandwidth_at_s)
                metrics.link_measurement_age.labels(*ends, BANDWIDTH).set(age_s)
            if estimate is not None and estimate.latency_s and estimate.latency_at_s is not None:
                metrics.link_measured_latency.labels(*ends).set(estimate.latency_s)
                age_s = max(0.0, now_s - estimate.latency_at_s)
                metrics.link_measurement_age.labels(*ends, LATENCY).set(age_s)
        for test in view.link_tests:
            if test.test_id not in self._counted_tests:
                metrics.link_tests.labels(test.kind, test.outcome).inc()
                metrics.link_test_bytes.inc(test.sent_bytes)
        self._counted_tests = frozenset(test.test_id for test in view.link_tests)

    def _show_quotas(self, view: View) -> None:
        metrics = self._services.metrics
        gauges = (
            metrics.project_held_gpus,
            metrics.project_quota_gpus,
            metrics.project_spent,
            metrics.project_quota,
        )
        for gauge in gauges:
            gauge.clear()
        for project in view.quotas.keys() | view.held_by_project.keys():
            metrics.project_held_gpus.labels(project).set(view.held_by_project.get(project, 0))
        for project, quota in view.quotas.items():
            metrics.project_spent.labels(project).set(quota.spent_usd)
            if quota.gpus is not None:
                metrics.project_quota_gpus.labels(project).set(quota.gpus)
            if quota.usd_per_month is not None:
                metrics.project_quota.labels(project).set(quota.usd_per_month)

    def _count_bills(self, view: View) -> None:
        metrics = self._services.metrics
        for bill in view.bills:
            subject = (bill.region, bill.project, bill.kind)
            self._spent_usd[subject] += bill.amount_usd
            metrics.cost.labels(*subject).set(self._spent_usd[subject])
            if self._last_bill is None:
                continue  # the first look tells what was ever spent; counters count from here
            if bill.kind in metrics_queries.KWH_KINDS:
                joules = bill.quantity * WATTS_PER_KILOWATT * SECONDS_PER_HOUR
                metrics.energy.labels(bill.region).inc(joules)
            if bill.unpriced:
                metrics.unpriced.labels(bill.region, bill.kind).inc(bill.unpriced)

    def _count_moves(self, view: View) -> None:
        metrics = self._services.metrics
        for move in view.moves:
            if (
                move.kind == STARTED
                and move.data.get("generation") == 1
                and move.first_started_at_s is not None
            ):
                metrics.job_queueing_delay.observe(move.first_started_at_s - move.submitted_at_s)
            # What a plan has stopped is counted where it is stopped: nothing is tried again.
            if move.kind == REQUEUED and move.data.get("cause") and move.data["cause"] not in BY_PLAN:
                metrics.job_retries.labels(str(move.data["cause"])).inc()
            if move.kind in ENDS:
                metrics.jobs_finished.labels(move.kind.removeprefix("job.")).inc()
            if move.kind == SUCCEEDED and move.finished_at_s is not None:
                metrics.job_completion.observe(move.finished_at_s - move.submitted_at_s)


def _electricity(session: Session, now_s: float) -> dict[str, tuple[float, float]]:
    regions = {record.series_id: record.region for record in prices.series(session, kind="electricity")}
    points = prices.points(session, list(regions), from_s=now_s, to_s=now_s, known_by_s=now_s)
    return {regions[point.series_id]: (point.value, point.valid_from_s) for point in points}
