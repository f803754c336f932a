"""Regions, pools, nodes and links."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from service.api.schemas.base import Answer, Body, body_example, example, flat
from service.db.records import LinkEstimateRecord
from service.links import LinkView
from service.nodes import NodeView
from service.regions import PoolView, RegionView

Bandwidth = Annotated[float, Field(gt=0, le=1e18, description="bit/s")]

GPUS = {"total": 4, "used": 2, "free": 2, "unavailable": 0}
POOL = {
    "region": "eu-west",
    "gpu_type": "cpu-slot",
    "ownership": "owned",
    "gpus": GPUS,
    "rent_usd_per_gpu_hour": None,
    "version": 1,
}
REGION = {
    "region": "eu-west",
    "pue": 1.15,
    "uplink_bps": 1e11,
    "downlink_bps": None,
    "gpus": GPUS,
    "nodes": 1,
    "pools": [POOL],
    "electricity_usd_per_kwh": 0.181,
    "carbon_g_per_kwh": None,
    "version": 3,
}
NODE = {
    "node_id": "eu-west-1",
    "agent_id": "agent-eu-west",
    "agent_version": "0.1.0",
    "region": "eu-west",
    "gpu_type": "cpu-slot",
    "gpus": 4,
    "used_gpus": 2,
    "state": "ready",
    "address": "10.0.3.17",
    "interface": None,
    "port_first": 29500,
    "port_last": 29599,
    "sustained_flops": 9.1e9,
    "measured_at_s": 1764460700.0,
    "measured_age_s": 95.0,
    "heartbeat_at_s": 1764460794.0,
    "heartbeat_age_s": 1.0,
    "clock_offset_s": 0.002,
    "version": 1,
}
LINK_FIGURES = {
    "capacity_bps": 5e9,
    "capacity_from": "limit",
    "capacity_why": "more was measured than the limit that was set",
    "latency_s": 0.012,
    "latency_from": "measured",
    "latency_why": "measured",
}
LINK_MEASURED = {
    "bandwidth_bps": 5.6e9,
    "bandwidth_age_s": 9200.0,
    "latency_s": 0.012,
    "latency_age_s": 340.0,
}
LINK_TEST = {
    "kind": "latency",
    "outcome": "done",
    "age_s": 340.0,
    "latency_s": 0.012,
    "bandwidth_bps": None,
    "is_floor": False,
    "sent_bytes": 0,
    "detail": None,
}
LINK = {
    "src": "eu-west",
    "dst": "eu-north",
    "capacity_bps": 5e9,
    "capacity_is_limit": True,
    "latency_s": 0.01,
    "measuring": None,
    "measuring_now": "bandwidth",
    "planned": LINK_FIGURES,
    "measured": LINK_MEASURED,
    "last_test": LINK_TEST,
    "reserved_bps": 1e9,
    "free_bps": 4e9,
    "egress_usd_per_gb": 0.02,
    "version": 1,
}


class GpuCount(Answer):
    """`total` = used + free + unavailable (on nodes that are cordoned or lost, and not held)."""

    model_config = example(GPUS)

    total: int
    used: int
    free: int
    unavailable: int


class Pool(Answer):
    """The GPUs of one type in one region. An owner pays their electricity, a renter their rent."""

    model_config = example(POOL)

    region: str
    gpu_type: str
    ownership: str
    gpus: GpuCount
    rent_usd_per_gpu_hour: float | None
    """Now; null where no price is known."""
    version: int

    @classmethod
    def of(cls, view: PoolView) -> Self:
        return cls.model_validate(
            flat(view.pool, gpus=view.gpus, rent_usd_per_gpu_hour=view.rent_usd_per_gpu_hour)
        )


class Region(Answer):
    """A place, what it has, and what power costs there now (null: not known)."""

    model_config = example(REGION)

    region: str
    pue: float
    uplink_bps: float | None
    """Bound of the sum of all links out of it; null: none."""
    downlink_bps: float | None
    gpus: GpuCount
    nodes: int
    pools: list[Pool]
    electricity_usd_per_kwh: float | None
    carbon_g_per_kwh: float | None
    version: int

    @classmethod
    def of(cls, view: RegionView) -> Self:
        return cls.model_validate(
            flat(view.record) | flat(view, pools=[Pool.of(pool) for pool in view.pools])
        )


class Node(Answer):
    """A host. `sustained_flops` was measured by its agent on one GPU or slot, `measured_age_s` ago."""

    model_config = example(NODE)

    node_id: str
    agent_id: str
    agent_version: str
    region: str
    gpu_type: str
    gpus: int
    used_gpus: int
    state: str
    """ready, cordoned (takes nothing new) or lost."""
    address: str
    interface: str | None
    port_first: int
    port_last: int
    sustained_flops: float
    measured_at_s: float
    measured_age_s: float
    heartbeat_at_s: float
    heartbeat_age_s: float
    clock_offset_s: float
    """The agent's clock minus the server's, at its last heartbeat."""
    version: int

    @classmethod
    def of(cls, view: NodeView) -> Self:
        ages = {"heartbeat_age_s": view.heartbeat_age_s, "measured_age_s": view.measured_age_s}
        return cls.model_validate(flat(view.agent) | flat(view.node, used_gpus=view.used_gpus, **ages))


class Drained(Answer):
    """A node that takes nothing new, and what becomes of the jobs on it."""

    model_config = example(
        {"node": {**NODE, "state": "cordoned"}, "restarting": ["job-01kb9x"], "staying": []}
    )

    node: Node
    restarting: list[str]
    """Told to stop with a checkpoint; they wait again, and go on elsewhere."""
    staying: list[str]
    """Their elasticity is `none`: they go on here until they end."""


class LinkFigures(Answer):
    """What planning goes by. A figure is as `configured`, as `measured`, or the `limit` that was set where more was
    measured."""

    model_config = example(LINK_FIGURES)

    capacity_bps: float
    capacity_from: str
    capacity_why: str
    latency_s: float
    latency_from: str
    latency_why: str


class LinkMeasured(Answer):
    """The medians of the last measurements; null where there were none."""

    model_config = example(LINK_MEASURED)

    bandwidth_bps: float | None
    bandwidth_age_s: float | None
    """Since the last of them."""
    latency_s: float | None
    latency_age_s: float | None


class LinkTest(Answer):
    """The measurement that ended last. `outcome`: done, failed, broken-off (a job needed the link) or timed-out."""

    model_config = example(LINK_TEST)

    kind: str
    outcome: str
    age_s: float
    latency_s: float | None
    bandwidth_bps: float | None
    is_floor: bool
    """The link carries at least that much: bytes or time ran out before it was full for long enough."""
    sent_bytes: int
    """What it sent, or might have sent."""
    detail: str | None
    """Why it came to nothing."""


class Link(Answer):
    """A directed link: as it was set, as it was measured, what planning goes by, and what running jobs hold of it."""

    model_config = example(LINK)

    src: str
    dst: str
    capacity_bps: float
    """As it was set."""
    capacity_is_limit: bool
    """Nothing that is measured makes it more."""
    latency_s: float
    """As it was set: one way (half the round trip)."""
    measuring: str | None
    """What agents may measure of it, as it was set: off, latency or bandwidth (both); null: what the server's settings
    say."""
    measuring_now: str
    planned: LinkFigures
    measured: LinkMeasured
    last_test: LinkTest | None
    reserved_bps: float
    free_bps: float
    """What is not held of the planned capacity."""
    egress_usd_per_gb: float | None
    """Now; null where no price is known (then counted as 0)."""
    version: int

    @classmethod
    def of(cls, view: LinkView) -> Self:
        estimate = view.estimate or LinkEstimateRecord(view.link.src, view.link.dst)
        test = view.last_test
        measured = {
            "bandwidth_bps": estimate.bandwidth_bps,
            "bandwidth_age_s": _age_s(view, estimate.bandwidth_at_s),
            "latency_s": estimate.latency_s,
            "latency_age_s": _age_s(view, estimate.latency_at_s),
        }
        whys = {"capacity_why": view.capacity_why, "latency_why": view.latency_why}
        return cls.model_validate(
            flat(view.link, measuring_now=view.measuring.value)
            | {
                "planned": flat(view.figures, **whys),
                "measured": measured,
                "last_test": None if test is None else flat(test, age_s=_age_s(view, test.ended_at_s)),
                "reserved_bps": view.reserved_bps,
                "free_bps": view.free_bps,
                "egress_usd_per_gb": view.egress_usd_per_gb,
            }
        )


def _age_s(view: LinkView, at_s: float | None) -> float | None:
    return None if at_s is None else max(0.0, view.now_s - at_s)


class PutRegion(Body):
    """The whole of what can be said of a region: what is left out is set back to its default."""

    model_config = body_example({"pue": 1.15, "uplink_bps": 1e11, "downlink_bps": None})

    pue: Annotated[float, Field(ge=1, le=10)] = 1.0
    uplink_bps: Bandwidth | None = None
    downlink_bps: Bandwidth | None = None


class PutPool(Body):
    """Who owns the GPUs."""

    model_config = body_example({"ownership": "rented"})

    ownership: Literal["owned", "rented"]


class PutLink(Body):
    """A directed link: the whole of what can be said of it. `capacity_bps` 0 takes it out of use; what is left out of
    the rest is set back to its default."""

    model_config = body_example(
        {"capacity_bps": 5e9, "latency_s": 0.012, "capacity_is_limit": True, "measuring": "latency"}
    )

    capacity_bps: Annotated[float, Field(ge=0, le=1e18)]
    latency_s: Annotated[float, Field(ge=0, le=60)]
    capacity_is_limit: bool = True
    """false: it is an estimate, and what is measured may be more."""
    measuring: Literal["off", "latency", "bandwidth"] | None = None
    """What agents may measure of it; null: what BACE_LINK_MEASURING says. Where that is off, nothing."""
