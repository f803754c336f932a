"""Why a job waits, or never can run: machine codes with what is needed and what there is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReasonCode(StrEnum):
    """One word a machine can match on. The meaning of each is in docs/protocol.md."""

    REGION_FILTERED = "RegionFiltered"  # placement rule, data rule or cool-down keeps the region out
    GPUS_EXHAUSTED = "GpusExhausted"  # the region has the GPUs, but not enough of them are free now
    LINK_BANDWIDTH_EXHAUSTED = "LinkBandwidthExhausted"  # a link lacks residual bandwidth for a cut
    UPLINK_EXHAUSTED = "UplinkExhausted"
    DOWNLINK_EXHAUSTED = "DownlinkExhausted"
    NO_LINK = "NoLink"
    PORTS_EXHAUSTED = "PortsExhausted"  # no rendezvous port is free where its first rank would stand
    CHAIN_TOO_SHORT = "ChainTooShort"  # the regions that can be joined now hold fewer stages than K_min
    BEHIND_IN_QUEUE = "BehindInQueue"  # jobs before it took what it needed in this round
    PLACE_KEPT = "PlaceKept"  # it has waited too long: where and when it comes next is kept free for it
    KEPT_FOR_ANOTHER = "KeptForAnother"  # what is free is kept for a job that has waited too long
    BETTER_SOON = "BetterSoon"  # it would fit, but by forecast it is better to wait for another place
    BLOCKED_BY_HEAD = "BlockedByHead"  # strict order: the job at the head waits
    DEADLINE_AT_RISK = "DeadlineAtRisk"  # it would fit, but not end by its deadline on what is free
    DEADLINE_UNMEETABLE = "DeadlineUnmeetable"  # not even alone on this cluster would it end by its deadline
    DEADLINE_MISSED = "DeadlineMissed"  # it has run, and goes on though its deadline cannot be kept any more
    BUDGET_AT_RISK = "BudgetAtRisk"  # it would fit, but what is free costs more than is left of its budget
    BUDGET_TOO_SMALL = (
        "BudgetTooSmall"  # not even at its cheapest, alone on this cluster, does it cost so little
    )
    BUDGET_EXHAUSTED = "BudgetExhausted"  # what is left of its budget is not enough to end it
    QUOTA_GPUS = "QuotaGpus"  # its project would hold more GPUs than it may
    QUOTA_SPEND = "QuotaSpend"  # its project would spend more this month than it may
    QUOTA_TOO_SMALL = "QuotaTooSmall"  # it needs more GPUs than its project may ever hold
    DATA_UNREACHABLE = "DataUnreachable"  # no link brings its data to where its first stage could stand
    MEMORY_TOO_SMALL = "MemoryTooSmall"  # no number of stages fits in any GPU type's memory
    NEVER_FITS = "NeverFits"  # K_min exceeds what this policy could ever place on this cluster
    NO_CAPACITY_YET = "NoCapacityYet"  # no schedulable node has joined that this job may use
    RETRY_BACKOFF = "RetryBackoff"  # waits before it is tried again after a failure
    WAITING_FOR_NODE = "WaitingForNode"  # its checkpoint lives where no node is at present
    PLAN_PENDING = "PlanPending"  # accepted; the next planning round has not looked at it yet


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause, as exact as it can be told. Amounts are in the unit that the code implies (GPUs, bit/s, bytes,
    seconds, USD)."""

    code: ReasonCode
    detail: str
    region: str | None = None
    link: tuple[str, str] | None = None
    needed: float | None = None
    available: float | None = None
