"""Regions, pools, nodes and links."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from service.api.schemas.base import Answer, Body, body_example, example, flat
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
LINK = {
    "src": "eu-west",
    "dst": "eu-north",
    "capacity_bps": 5e9,
    "latency_s": 0.012,
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


class Link(Answer):
    """A directed link and what running jobs hold of it."""

    model_config = example(LINK)

    src: str
    dst: str
    capacity_bps: float
    latency_s: float
    """One way (half the round trip)."""
    reserved_bps: float
    free_bps: float
    egress_usd_per_gb: float | None
    """Now; null where no price is known (then counted as 0)."""
    version: int

    @classmethod
    def of(cls, view: LinkView) -> Self:
        return cls.model_validate(flat(view.link) | flat(view, free_bps=view.free_bps))


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
    """A directed link. `capacity_bps` 0 takes it out of use."""

    model_config = body_example({"capacity_bps": 5e9, "latency_s": 0.012})

    capacity_bps: Annotated[float, Field(ge=0, le=1e18)]
    latency_s: Annotated[float, Field(ge=0, le=60)]
