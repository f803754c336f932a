"""The policies: each answers a snapshot with a plan.

A plan is a function of (snapshot, configuration): not of the order in which the snapshot lists its jobs, pools or
links, nor of hash seeds or clocks; names break ties and do nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from scheduler.errors import InvalidValueError
from scheduler.objective import Objective
from scheduler.plan import Plan
from scheduler.policies import ablations, atlas, bace, bace_elastic, baselines, marginal, srpt
from scheduler.policies.easy import EasyPolicy
from scheduler.policies.elastic import ElasticPolicy
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.policies.orders import in_order
from scheduler.policies.queueing import QueuePolicy
from scheduler.policies.quotas import decide_within
from scheduler.policies.variants import VARIANTS
from scheduler.priority import by_arrival, by_dynamic_priority, by_user_priority
from scheduler.snapshot import Snapshot

__all__ = [
    "GROWING",
    "MAIN",
    "POLICIES",
    "STUDIES",
    "VARIANTS",
    "Policy",
    "PolicyConfig",
    "decide",
    "plans_by_limits",
    "policy_of",
]

Policy = QueuePolicy | EasyPolicy | ElasticPolicy | HorizonPolicy
"""All have a name, a meaning in words, and `replans`: whether they may change running jobs."""

_FIFO = QueuePolicy(
    "fifo",
    "Arrival order; the region with the most free GPUs.",
    by_arrival,
    baselines.place_ldf,
    baselines.place_ldf,
    crosses_regions=False,
)
_BACE = QueuePolicy(
    "bace",
    "BACE-Pipe: dynamic priority, bandwidth-aware pathfinder, Cost-Min allocation.",
    by_dynamic_priority,
    bace.place,
    bace.place,
    crosses_regions=True,
    mixes_gpu_types=True,
)
_MAIN: tuple[Policy, ...] = (
    _FIFO,
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
    _BACE,
    replace(_BACE, name="bace-k0", meaning="BACE-Pipe with no more stages than the job names.", growth=0.0),
    HorizonPolicy(
        "horizon",
        "Every option of every job scored in seconds; running jobs are resized, moved and paused where it pays.",
        _BACE,
    ),
)
_STUDIES: tuple[Policy, ...] = (
    replace(
        _BACE,
        name="bace-no-priority",
        meaning="BACE-Pipe in order of arrival.",
        order=by_user_priority,
    ),
    replace(
        _BACE,
        name="bace-no-path",
        meaning="BACE-Pipe over regions joined by free GPUs alone, whatever their links hold.",
        place=ablations.place_without_path,
        could_ever=baselines.could_ever_cross,
        mixes_gpu_types=False,
        need_bps=baselines.least_need,
    ),
    replace(
        _BACE,
        name="bace-no-cost",
        meaning="BACE-Pipe without prices, its stages spread evenly.",
        place=ablations.place_without_cost,
        could_ever=ablations.place_without_cost,
    ),
    QueuePolicy(
        "atlas",
        "Atlas's choice of data centres: those with the most free GPUs, as many of them as is fastest.",
        by_user_priority,
        atlas.place,
        baselines.could_ever_cross,
        crosses_regions=True,
        need_bps=baselines.least_need,
    ),
    EasyPolicy(
        "easy",
        "EASY backfill: arrival order, the head has a reservation, others start where they do not delay it.",
        _FIFO,
    ),
    ElasticPolicy(
        "bace-elastic",
        "BACE-Pipe's own decisions; running jobs are resized and pushed aside as by horizon.",
        _BACE,
        bace_elastic.act,
    ),
    ElasticPolicy(
        "srpt",
        "The shortest remaining time first, in one region; running jobs are resized and pushed aside.",
        _FIFO,
        srpt.act,
    ),
    ElasticPolicy(
        "marginal",
        "GPUs go to the jobs that they speed up most; running jobs are resized.",
        replace(
            _BACE,
            name="marginal",
            place=marginal.place,
            could_ever=marginal.place,
            mixes_gpu_types=False,
        ),
        marginal.act,
    ),
)

MAIN: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _MAIN})
"""The policies to run a cluster with, by name."""
STUDIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _STUDIES})
"""Rivals and ablations, which are there to be compared with."""
POLICIES: Mapping[str, Policy] = MappingProxyType({**MAIN, **STUDIES})
"""All of them."""


GROWING: tuple[str, ...] = tuple(
    name for name, policy in POLICIES.items() if not isinstance(policy, HorizonPolicy) and name != "bace-k0"
)
"""Those of which a study may bound how far K grows."""


def plans_by_limits(policy: str) -> bool:
    """Whether the policy of that name plans by deadlines, budgets and how long jobs may wait."""
    return isinstance(POLICIES[policy], HorizonPolicy)


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Which policy decides. `strict`: behind the first job that must wait, nobody starts (no backfill). `objective`
    is for the policies that weigh time against cost. The others have `growth`, which a study turns: how far the cap of
    K goes from the stages that a job names (0) to K* (1). `variant`, where not empty, is the name of a horizon without
    one of its mechanisms.

    Raises InvalidValueError for a name that no policy, a variant that no horizon, or a growth that the policy has not.
    """

    name: str = "bace"
    strict: bool = False
    seed: int = 0
    objective: Objective = field(default_factory=Objective)
    variant: str = ""
    growth: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in POLICIES:
            raise InvalidValueError("policy", self.name, f"one of {', '.join(POLICIES)}")
        if not 0.0 <= self.growth <= 1.0:
            raise InvalidValueError("growth", self.growth, "a number between 0 and 1")
        if self.growth != 1.0 and self.name not in GROWING:
            raise InvalidValueError("growth", f"{self.name}: {self.growth:g}", f"of {', '.join(GROWING)}")
        if self.variant and not (self.name == "horizon" and self.variant in VARIANTS):
            raise InvalidValueError(
                "variant", f"{self.name}:{self.variant}", f"of horizon, one of {', '.join(VARIANTS)}"
            )


def policy_of(config: PolicyConfig) -> Policy:
    """The policy as it is configured, but for what each decision is told: `strict`, `seed` and `objective`."""
    policy = POLICIES[config.name]
    if isinstance(policy, HorizonPolicy):
        return replace(policy, config=VARIANTS[config.variant]) if config.variant else policy
    if config.growth == 1.0:
        return policy
    if isinstance(policy, QueuePolicy):
        return replace(policy, growth=config.growth)
    return replace(policy, verdicts=replace(policy.verdicts, growth=config.growth))


def decide(snapshot: Snapshot, config: PolicyConfig) -> Plan:
    """One decision for every waiting job, in the order in which the policy looked at them; within quotas.

    Policies choose by windows; what begins is given its order where one is faster (`orders.in_order`).
    """
    return in_order(snapshot, decide_within(snapshot, lambda world: asked(world, config)))


def asked(snapshot: Snapshot, config: PolicyConfig) -> Plan:
    """What the policy alone decides, whatever the quotas."""
    policy = policy_of(config)
    if isinstance(policy, HorizonPolicy):
        return policy.decide(snapshot, strict=config.strict, seed=config.seed, objective=config.objective)
    return policy.decide(snapshot, strict=config.strict, seed=config.seed)
