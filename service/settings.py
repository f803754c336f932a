"""The server's settings, from the environment (prefix `BACE_`): one setting, one variable."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

LEASE_MARGIN_S = 5.0
"""Between the end of an agent's own stop and the server's judgement: supervisors look at the lease every half a second,
the clocks of two servers may be two seconds apart (`db/common_clock.py`), and disks are slow."""
CLOCK_DRIFT = 500e-6
"""No two clocks of machines drift apart faster than this, each: ten times what a quartz does."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ServerRole(StrEnum):
    """What a server process does. Those that run the control loops lead one at a time."""

    API = "api"
    CONTROL = "control"
    ALL = "all"


class LinkMeasuring(StrEnum):
    """What agents measure of the links between their regions."""

    OFF = "off"
    LATENCY = "latency"  # a few bytes
    BANDWIDTH = "bandwidth"  # both: as many bytes as the budget allows


class Settings(BaseSettings):
    """What a server may be told. Durations are seconds."""

    model_config = SettingsConfigDict(env_prefix="BACE_", frozen=True, extra="ignore")

    home: Path = Path("~/.local/share/bacepipe")
    """BACE_HOME: the folder of the database, the checkpoints and the first admin token."""
    database_url: Annotated[str, Field(repr=False)] = ""
    """SQLAlchemy URL. Empty: SQLite in `home`. PostgreSQL: postgresql+psycopg://user@host/name."""
    redis_url: Annotated[str, Field(repr=False)] = ""
    """Wakes the loops and streams of several servers at once. Empty: this process alone."""
    checkpoint_root: str = ""
    """Where checkpoints go if a job names no place. Empty: `home`/checkpoints."""

    role: ServerRole = ServerRole.ALL
    """Of this process, where several share a PostgreSQL database: the API, the control loops, or both."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8642
    tls_cert_file: str = ""
    """PEM file with the server's certificate and those between it and the authority: it then speaks TLS itself."""
    tls_key_file: str = ""
    """PEM file with the key of the certificate, which only its owner may read."""
    tls_terminated: bool = False
    """Something in front of this server speaks TLS: without that, and without a certificate of its own, it listens on
    loopback only."""
    trusted_proxies: str = ""
    """Addresses, by commas, of proxies whose X-Forwarded-For is believed; `*`: of whoever connects."""
    rate_limit_per_s: Annotated[float, Field(ge=0, le=1e6)] = 1000.0
    """Requests of one token, on one replica; 0: no limit. Agents have none."""
    rate_limit_burst: Annotated[float, Field(ge=1, le=1e6)] = 2000.0
    failed_logins_per_s: Annotated[float, Field(ge=0, le=1e6)] = 0.5
    """Tokens that open nothing, from one address; 0: no limit."""
    failed_logins_burst: Annotated[float, Field(ge=1, le=1e6)] = 20.0
    max_client_requests: Annotated[int, Field(ge=1, le=100_000)] = 2048
    """Requests of clients that are being answered at once; what comes beyond is told to come again. Agents' are not
    counted."""
    max_planner_questions: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Dry runs, explanations and comparisons of schedules that wait or are computed at once, two at a time."""
    max_streams_per_token: Annotated[int, Field(ge=1, le=100_000)] = 64
    db_threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Reads of the database at a time; writes share one thread and its commits."""

    token_lifetime_s: Positive = 90 * 86_400.0
    """Of a user's token for which nothing else was asked."""
    service_token_lifetime_s: Positive = 365 * 86_400.0
    """Of a service account's."""
    audit_retention_s: Positive = 400 * 86_400.0
    """Rows of the audit log are kept for so long."""

    policy: str = "bace"
    strict: bool = False
    seed: int = 0
    objective_weight_jct: Annotated[float, Field(ge=0, le=1)] = 0.5
    """For policies that weigh time against cost: 0 is cheapest, 1 is fastest."""
    objective_cheapest_within: Annotated[float, Field(ge=0, le=10)] | None = None
    """The cheapest plan whose mean completion time is at most this part above the fastest's (0.05: 5 %)."""
    plan_interval_s: Positive = 5.0
    """A planning round takes place at least so often, woken or not."""
    replan_debounce_s: Positive = 15.0
    """A policy that changes running jobs is asked again at most so often, unless somebody new waits."""
    replan_interval_s: Positive = 120.0
    """It is asked at least so often while jobs run that it may change, whether anything has happened or not."""
    promise_max_age_s: Positive = 600.0
    """A promised place that is not free after so long is taken back."""
    restart_fixed_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """What the planner takes a restart to last beside the state: processes start, groups form, caches warm up."""
    storage_gbps_per_gpu: Positive = 1.0
    """At what rate the planner takes a GPU to write and to read its part of a job's state."""
    tick_s: Positive = 1.0
    """Of the liveness and reconciling loops."""
    bill_interval_s: Positive = 15.0
    leader_lease_s: Positive = 15.0

    link_measuring: LinkMeasuring = LinkMeasuring.LATENCY
    """Of links for which nothing else was said; off: of none. Bytes may cost egress, so they are not sent unasked."""
    link_latency_interval_s: Annotated[float, Field(ge=1, le=30 * 86_400)] = 900.0
    """Between two measurements of a link's latency."""
    link_bandwidth_interval_s: Annotated[float, Field(ge=1, le=30 * 86_400)] = 6 * 3600.0
    link_test_bytes: Annotated[int, Field(ge=100_000, le=10**13)] = 250_000_000
    """One measurement of bandwidth sends no more …"""
    link_test_s: Annotated[float, Field(ge=0.5, le=60)] = 5.0
    """… and for no longer."""
    link_bytes_per_day: Annotated[int, Field(ge=0, le=10**15)] = 1_000_000_000
    """Of all measurements of a link in 24 hours."""
    link_max_age_s: Positive = 86_400.0
    """What was measured longer ago is not gone by."""
    link_change: Annotated[float, Field(ge=0, le=1)] = 0.15
    """A measurement that differs by no more than this part changes nothing."""

    node_identity_lifetime_s: Positive = 7 * 86_400.0
    """A node that cannot reach the server for a third of it has to join anew; else it is renewed."""
    heartbeat_interval_s: Positive = 2.0
    """Between two heartbeats of an agent while there are few; more agents are told to beat less often."""
    heartbeats_per_s: Positive = 500.0
    """The budget of all agents together."""
    missed_heartbeats: Annotated[int, Field(ge=2, le=1000)] = 3
    """A node is not lost before its agent has missed so many in a row, whatever `node_lost_after_s` says."""
    lease_s: Positive = 60.0
    """An agent without an answered heartbeat for so long stops its workers."""
    max_stop_grace_s: Positive = 120.0
    """The longest `stop.grace` a job may ask for."""
    node_lost_after_s: Positive = 200.0
    """A node without a heartbeat for so long is lost: its workers must have ended by themselves before."""
    start_timeout_s: Positive = 300.0
    """A gang that is not ready after so long is stopped and tried again."""
    max_retries: Annotated[int, Field(ge=0, le=100)] = 3
    retry_backoff_s: Positive = 5.0
    """Before the first retry; doubles with each."""
    region_cooldown_s: Annotated[float, Field(ge=0, le=86_400)] = 900.0
    """A job that a node failed does not go back to that region for so long, where it could run elsewhere."""

    @model_validator(mode="after")
    def _leases_end_before_nodes_are_lost(self) -> Self:
        # The agent counts the left side with the slowest clock there is, the server the right with the fastest.
        slowest = (1 + CLOCK_DRIFT) / (1 - CLOCK_DRIFT)
        least = (self.lease_s + self.max_stop_grace_s) * slowest + LEASE_MARGIN_S
        if self.node_lost_after_s <= least:
            raise ValueError(
                f"BACE_NODE_LOST_AFTER_S: {self.node_lost_after_s} is not valid: expected more than BACE_LEASE_S + "
                f"BACE_MAX_STOP_GRACE_S, drift of clocks and {LEASE_MARGIN_S} = {least:.2f}, so that two generations "
                "never run at once"
            )
        if self.lease_s <= 2 * self.heartbeat_interval_s:
            raise ValueError(
                f"BACE_LEASE_S: {self.lease_s} is not valid: expected more than two heartbeats "
                f"(BACE_HEARTBEAT_INTERVAL_S = {self.heartbeat_interval_s})"
            )
        return self

    @model_validator(mode="after")
    def _certificate_and_key_go_together(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            missing = "BACE_TLS_KEY_FILE" if self.tls_cert_file else "BACE_TLS_CERT_FILE"
            raise ValueError(f"{missing}: '' is not valid: expected the file that goes with the other")
        return self

    @model_validator(mode="after")
    def _a_measurement_fits_into_its_day(self) -> Self:
        if self.link_measuring is LinkMeasuring.BANDWIDTH and self.link_test_bytes > self.link_bytes_per_day:
            raise ValueError(
                f"BACE_LINK_BYTES_PER_DAY: {self.link_bytes_per_day} is not valid: expected at least one measurement "
                f"(BACE_LINK_TEST_BYTES = {self.link_test_bytes})"
            )
        return self

    @property
    def speaks_tls(self) -> bool:
        """Whether it has a certificate of its own."""
        return bool(self.tls_cert_file)

    @model_validator(mode="after")
    def _roles_share_a_server_database(self) -> Self:
        if self.role is not ServerRole.ALL and self.database.startswith("sqlite"):
            raise ValueError(
                f"BACE_ROLE: {self.role.value} is not valid with SQLite, which one process serves whole: expected "
                "all, or a BACE_DATABASE_URL of PostgreSQL"
            )
        return self

    @property
    def home_folder(self) -> Path:
        return self.home.expanduser().resolve()

    @property
    def database(self) -> str:
        """The SQLAlchemy URL in use."""
        return self.database_url or f"sqlite:///{self.home_folder / 'bace.db'}"

    @property
    def checkpoints(self) -> str:
        """URI of the folder under which a job's default checkpoint folder is made."""
        return self.checkpoint_root or (self.home_folder / "checkpoints").as_uri()
