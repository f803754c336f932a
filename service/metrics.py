"""Every metric of the server, by name: one registry a process. Base units, and no job ids as labels.

GPU telemetry is dcgm-exporter's; figures of single stages are on the agents' own endpoints. Gauges of the cluster are
set by the leader's observing loop from the database, counters where things happen.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

_REQUEST_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PHASE_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_JOB_BUCKETS_S = (1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400, 3 * 86_400, 7 * 86_400)


class Metrics:
    """The registry and its instruments. Make one for each process (or test); nothing is global."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._cluster_gauges: list[Gauge] = []
        self._http()
        self._scheduler()
        self._control()
        self._resources()

    def exposition(self) -> bytes:
        """The page that Prometheus scrapes, text format."""
        return generate_latest(self.registry)

    def clear_cluster(self) -> None:
        """Forget what only a leader may tell, when it no longer leads."""
        for gauge in self._cluster_gauges:
            gauge.clear()

    def _http(self) -> None:
        self.http_requests = Counter(
            "bace_http_requests", "HTTP requests.", ["method", "route", "status"], registry=self.registry
        )
        self.http_request_duration = Histogram(
            "bace_http_request_duration_seconds",
            "Time to the last byte of an answer.",
            ["method", "route"],
            buckets=_REQUEST_BUCKETS_S,
            registry=self.registry,
        )
        self.denials = Counter(
            "bace_denials",
            "Requests that were not let in: no token, not allowed, not the caller's to see, too many.",
            ["code"],
            registry=self.registry,
        )
        self.rate_limited = Counter(
            "bace_rate_limited",
            "Requests that were told to come again, by what was exceeded: token, address, server or streams.",
            ["limit"],
            registry=self.registry,
        )
        self.http_requests_in_progress = Gauge(
            "bace_http_requests_in_progress", "Requests being answered.", registry=self.registry
        )

    def _scheduler(self) -> None:
        self.queue_jobs = self._gauge("bace_queue_jobs", "Unfinished jobs.", ["queue", "state"])
        self.queue_oldest_job_age = self._gauge(
            "bace_queue_oldest_job_age_seconds", "Age of the job that waits longest.", ["queue"]
        )
        self.unplaced_jobs = self._gauge("bace_unplaced_jobs", "Waiting jobs by first reason.", ["reason"])
        self.plan_duration = Histogram(
            "bace_plan_duration_seconds",
            "Time of a phase of a planning round.",
            ["phase"],
            buckets=_PHASE_BUCKETS_S,
            registry=self.registry,
        )
        self.plans = Counter(
            "bace_plans", "Planning rounds by what became of them.", ["outcome"], registry=self.registry
        )
        self.placements = Counter("bace_placements", "Allocations that were started.", registry=self.registry)
        self.preemptions = Counter(
            "bace_preemptions", "Running jobs that a plan made wait again.", registry=self.registry
        )
        self.moves = Counter(
            "bace_moves",
            "Running jobs that a plan gave other stages (resize) or other regions (migrate).",
            ["kind"],
            registry=self.registry,
        )
        self.promised_jobs = self._gauge(
            "bace_promised_jobs", "Jobs whose place is decided and not free yet.", ["kind"]
        )
        self.broken_promises = Counter(
            "bace_broken_promises", "Promised places that could not be had any more.", registry=self.registry
        )
        self.snapshot_age = Gauge(
            "bace_snapshot_age_seconds",
            "Age of its snapshot when the last plan was applied.",
            registry=self.registry,
        )
        self.job_queueing_delay = Histogram(
            "bace_job_queueing_delay_seconds",
            "First start minus submission.",
            buckets=_JOB_BUCKETS_S,
            registry=self.registry,
        )
        self.job_completion = Histogram(
            "bace_job_completion_seconds",
            "Finish minus submission of jobs that succeeded.",
            buckets=_JOB_BUCKETS_S,
            registry=self.registry,
        )
        self.training_drift = self._gauge(
            "bace_training_drift_updates",
            "Most updates of a stage between a forward and its backward, of running jobs that update within a step.",
            ["queue"],
        )
        self.training_drift_bound = self._gauge(
            "bace_training_drift_bound_updates", "The largest bound of that.", ["queue"]
        )
        self.training_rolled_back = self._gauge(
            "bace_training_rolled_back_updates",
            "Updates that stages of running jobs took back in this generation.",
            ["queue"],
        )
        self.jobs_finished = Counter(
            "bace_jobs_finished", "Jobs that came to an end.", ["state"], registry=self.registry
        )
        self.job_retries = Counter(
            "bace_job_retries", "Jobs that went back to the queue.", ["cause"], registry=self.registry
        )

    def _control(self) -> None:
        self.leader = Gauge("bace_leader", "1 where this instance leads.", registry=self.registry)
        self.leader_epoch = Gauge(
            "bace_leader_epoch", "Epoch this instance saw last.", registry=self.registry
        )
        self.loop_last_success = Gauge(
            "bace_loop_last_success_timestamp_seconds",
            "When a control loop last came through.",
            ["loop"],
            registry=self.registry,
        )
        self.loop_failures = Counter(
            "bace_loop_failures", "Rounds of a control loop that failed.", ["loop"], registry=self.registry
        )
        self.heartbeat_interval = Gauge(
            "bace_heartbeat_interval_seconds",
            "Between two heartbeats of an agent, as agents are told.",
            registry=self.registry,
        )
        self.heartbeats = Counter("bace_heartbeats", "Heartbeats answered.", registry=self.registry)
        self.nodes = self._gauge("bace_nodes", "Nodes.", ["region", "state"])
        self.heartbeat_age = self._gauge(
            "bace_heartbeat_oldest_age_seconds",
            "Age of the oldest heartbeat of a node that counts.",
            ["region"],
        )
        self.fenced_writes = Counter(
            "bace_fenced_writes", "Writes of a deposed leader that were refused.", registry=self.registry
        )

    def _resources(self) -> None:
        self.gpus = self._gauge("bace_gpus", "GPUs.", ["region", "model", "state"])
        self.link_capacity = self._gauge(
            "bace_link_capacity_bytes_per_second", "Capacity of a directed link.", ["src", "dst"]
        )
        self.link_planned = self._gauge(
            "bace_link_planned_bytes_per_second",
            "Capacity of a directed link that planning goes by: what was set, or measured.",
            ["src", "dst"],
        )
        self.link_measured_bandwidth = self._gauge(
            "bace_link_measured_bandwidth_bytes_per_second",
            "Median of the last measurements of a directed link.",
            ["src", "dst"],
        )
        self.link_measured_latency = self._gauge(
            "bace_link_measured_latency_seconds",
            "One way: half the shortest round trip, median of the last measurements.",
            ["src", "dst"],
        )
        self.link_measurement_age = self._gauge(
            "bace_link_measurement_age_seconds",
            "Since the last measurement, by what was measured.",
            ["src", "dst", "kind"],
        )
        self.link_tests = Counter(
            "bace_link_tests",
            "Measurements of links that ended, by what was measured and what came of it.",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self.link_test_bytes = Counter(
            "bace_link_test_bytes", "Bytes that measurements of links have sent.", registry=self.registry
        )
        self.link_reserved = self._gauge(
            "bace_link_reserved_bytes_per_second", "Bandwidth held on a directed link.", ["src", "dst"]
        )
        self.electricity_price = self._gauge(
            "bace_electricity_price_dollars_per_kilowatt_hour", "Price now, where one is known.", ["region"]
        )
        self.electricity_price_age = self._gauge(
            "bace_electricity_price_age_seconds", "Since the price now in force became valid.", ["region"]
        )
        self.energy = Counter(
            "bace_energy_joules", "Energy billed, PUE included.", ["region"], registry=self.registry
        )
        self.cost = self._gauge(
            "bace_cost_dollars",
            "Amounts billed so far; falls while a price is negative.",
            ["region", "queue", "kind"],
        )
        self.unpriced = Counter(
            "bace_unpriced_bills",
            "Bills for which no price was known.",
            ["region", "kind"],
            registry=self.registry,
        )

        self.project_held_gpus = self._gauge(
            "bace_project_held_gpus", "GPUs that a project holds.", ["queue"]
        )
        self.project_quota_gpus = self._gauge(
            "bace_project_quota_gpus", "GPUs that a project may hold at once.", ["queue"]
        )
        self.project_spent = self._gauge(
            "bace_project_spent_month_dollars", "Billed to a project in this calendar month (UTC).", ["queue"]
        )
        self.project_quota = self._gauge(
            "bace_project_quota_month_dollars", "What a project may spend in a calendar month.", ["queue"]
        )

    def _gauge(self, name: str, documentation: str, labels: list[str]) -> Gauge:
        """A gauge that the leader alone tells."""
        gauge = Gauge(name, documentation, labels, registry=self.registry)
        self._cluster_gauges.append(gauge)
        return gauge
