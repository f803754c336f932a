"""The policies: each answers a snapshot with a plan.

A plan is a function of (snapshot, configuration): not of the order in which the snapshot lists its jobs, pools or
links, nor of hash seeds or clocks; names break ties and do nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from scheduler.errors import InvalidValueError
from scheduler.objective import Objective
from scheduler.plan import Plan
from scheduler.policies import bace, baselines
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.policies.queueing import QueuePolicy
from scheduler.priority import by_arrival, by_dynamic_priority, by_user_priority
from scheduler.snapshot import Snapshot

__all__ = ["POLICIES", "PolicyConfig", "decide"]

_ALL = (
    QueuePolicy(
        "fifo",
        "Arrival order; the region with the most free GPUs.",
        by_arrival,
        baselines.place_ldf,
        baselines.place_ldf,
        crosses_regions=False,
    ),
    QueuePolicy(
        "lcf",
        "One region: the cheapest that has room.",
        by_user_priority,
        baselines.place_lcf,
        baselines.place_lcf,
        crosses_regions=False,
    ),
    QueuePolicy(
        "ldf",
        "One region: the one with the most free GPUs.",
        by_user_priority,
        baselines.place_ldf,
        baselines.place_ldf,
        crosses_regions=False,
    ),
    QueuePolicy(
        "cr-lcf",
        "Several regions by ascending price.",
        by_user_priority,
        baselines.place_cr_lcf,
        baselines.could_ever_cross,
        crosses_regions=True,
        need_bps=baselines.least_need,
    ),
    QueuePolicy(
        "cr-ldf",
        "Several regions by free GPUs and bandwidth.",
        by_user_priority,
        baselines.place_cr_ldf,
        baselines.could_ever_cross,
        crosses_regions=True,
        need_bps=baselines.least_need,
    ),
    QueuePolicy(
        "bace",
        "BACE-Pipe: dynamic priority, bandwidth-aware pathfinder, Cost-Min allocation.",
        by_dynamic_priority,
        bace.place,
        bace.place,
        crosses_regions=True,
        mixes_gpu_types=True,
    ),
    QueuePolicy(
        "bace-k0",
        "BACE-Pipe with no more stages than the job names.",
        by_dynamic_priority,
        bace.place,
        bace.place,
        crosses_regions=True,
        mixes_gpu_types=True,
        as_named=True,
    ),
)

_HORIZON = HorizonPolicy(
    "horizon",
    "Every option of every job scored in seconds; running jobs are resized, moved and paused where it pays.",
    next(policy for policy in _ALL if policy.name == "bace"),
)

POLICIES: Mapping[str, QueuePolicy | HorizonPolicy] = MappingProxyType(
    {policy.name: policy for policy in (*_ALL, _HORIZON)}
)
"""Every policy by its name."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Which policy decides. `strict`: behind the first job that must wait, nobody starts (no backfill). `objective`
    is for the policies that weigh time against cost; the others have no such choice.

    Raises InvalidValueError for a name that no policy has.
    """

    name: str = "bace"
    strict: bool = False
    seed: int = 0
    objective: Objective = field(default_factory=Objective)

    def __post_init__(self) -> None:
        if self.name not in POLICIES:
            raise InvalidValueError("policy", self.name, f"one of {', '.join(POLICIES)}")


def decide(snapshot: Snapshot, config: PolicyConfig) -> Plan:
    """One decision for every waiting job, in the order in which the policy looked at them."""
    policy = POLICIES[config.name]
    if isinstance(policy, HorizonPolicy):
        return policy.decide(snapshot, strict=config.strict, seed=config.seed, objective=config.objective)
    return policy.decide(snapshot, strict=config.strict, seed=config.seed)
