"""An agent says who it is and what it has: its nodes become capacity. Idempotent by agent_id and node_id."""

from __future__ import annotations

from dataclasses import asdict, replace

from agents.protocol import GpuTypeOffer, JoinReply, JoinRequest, NodeIdentity, NodeOffer
from scheduler import presets
from scheduler.cluster import GpuType, Ownership
from scheduler.errors import InvalidValueError, UnknownPresetError
from service import node_identity, progress, topics
from service.access import Credential
from service.agent_clocks import newest
from service.db import agent_queries, control_queries
from service.db.records import (
    AgentRecord,
    GpuTypeRecord,
    NodeRecord,
    PoolRecord,
    RegionRecord,
    TokenRecord,
)
from service.db.repositories import access, cluster, events, leader
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import ConflictError, FieldError, ForbiddenError, InvalidInputError
from service.lifecycle import Moment, NodeState, move_node, record_birth
from service.node_identity import Secret
from service.services import Services

NOT_OFFERED = "no longer offered by its agent"
BACK_BY_JOINING = frozenset({NOT_OFFERED, node_identity.REVOKED})
DEFAULT_PUE = 1.0
"""Of a region that an agent names first; whoever knows better sets it."""


async def join(services: Services, credential: Credential, request: JoinRequest) -> JoinReply:
    """Take in an agent and its nodes, and wake planning.

    Raises InvalidInputError for an offer that cannot be meant, UnauthenticatedError for a token that has been used up,
    ForbiddenError where the agent or a node is another token's or agent's, ConflictError where a node changed its kind
    while work is on it.
    """
    now_s, secret = services.clock.now(), Secret.new(services)
    moment = Moment(now_s, request.agent_id)

    def work(session: Session) -> TokenRecord | None:
        joined_with = store_join(session, request, credential=credential, moment=moment)
        if credential.is_identity or not request.identity:
            return None
        lifetime_s = services.settings.node_identity_lifetime_s
        return node_identity.issue(session, secret, joined_with, request.agent_id, moment, lifetime_s)

    issued = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    settings = services.settings
    return JoinReply(
        heartbeat_interval_s=services.pace.interval_s(settings),
        lease_s=settings.lease_s,
        server_time_s=now_s,
        identity=None
        if issued is None or issued.expires_at_s is None
        else NodeIdentity(token=secret.text, expires_at_s=issued.expires_at_s),
    )


def store_join(
    session: Session, request: JoinRequest, *, credential: Credential, moment: Moment
) -> TokenRecord:
    """The transaction of `join`; the token that the agent has joined with."""
    joined_with = node_identity.use(session, credential, request)
    _agent(session, request, credential, moment)
    for index, offer in enumerate(request.nodes):
        _check(offer, f"/nodes/{index}")
        _region(session, offer.region, moment)
        _gpu_type(session, offer.gpu, f"/nodes/{index}/gpu")
        _pool(session, offer)
        _node(session, request.agent_id, offer, credential, moment)
    offered = {offer.node_id for offer in request.nodes}
    for node in cluster.nodes_of_agent(session, request.agent_id):
        if node.node_id not in offered and node.state != NodeState.CORDONED:
            move_node(session, node, NodeState.CORDONED, moment, data={"cause": NOT_OFFERED})
    leader.capacity_changed(session)
    progress.reopen_rejected(session, moment)
    return joined_with


def _agent(session: Session, request: JoinRequest, credential: Credential, moment: Moment) -> None:
    known = cluster.agent(session, request.agent_id)
    if known is None:
        cluster.add_agent(
            session,
            AgentRecord(
                agent_id=request.agent_id,
                token_id=credential.token_id,
                agent_version=request.agent_version,
                boot_id=None,
                reports_stored=0,
                clock_offset_s=request.clock_s - moment.at_s,
                joined_at_s=moment.at_s,
                heartbeat_at_s=moment.at_s,
            ),
        )
        return
    if known.revoked_at_s is not None and not credential.single_use:
        raise ForbiddenError(
            f"agent {request.agent_id} was revoked: it may join again with a token of `bace node token create`"
        )
    speaks_for_it = credential.is_identity or known.token_id == credential.token_id
    if not speaks_for_it and _is_usable(session, known.token_id, moment.at_s):
        raise ForbiddenError(
            f"agent {request.agent_id} belongs to another token that is in use: choose another agent id, or revoke "
            "that token (`bace node revoke` where it has an identity of its own)"
        )
    _, clock_offset_s = newest(known, known.boot_id, request.clock_s, moment.at_s)
    cluster.change_agent(
        session,
        request.agent_id,
        # An identity speaks for its agent from its first heartbeat on: until then the reply may have been lost.
        token_id=known.token_id if credential.is_identity else credential.token_id,
        revoked_at_s=None,
        agent_version=request.agent_version,
        clock_offset_s=clock_offset_s,
        heartbeat_at_s=moment.at_s,
    )


def _is_usable(session: Session, token_id: str, now_s: float) -> bool:
    token = access.token(session, EVERYTHING, token_id)
    if token is None or token.revoked_at_s is not None:
        return False
    return token.expires_at_s is None or token.expires_at_s > now_s


def _check(offer: NodeOffer, pointer: str) -> None:
    if offer.port_last < offer.port_first:
        detail = f"{offer.port_last} is not valid: expected at least port_first = {offer.port_first}"
        raise InvalidInputError(
            "the port range is empty", errors=(FieldError(f"{pointer}/port_last", detail),)
        )


def _region(session: Session, name: str, moment: Moment) -> None:
    if cluster.region(session, name) is not None:
        return
    cluster.add_region(session, RegionRecord(name, DEFAULT_PUE, None, None, 1))
    events.append(
        session,
        project=SHARED_PROJECT,
        at_s=moment.at_s,
        kind="region.created",
        object_kind="region",
        object_id=name,
        actor=moment.actor,
        data={"pue": DEFAULT_PUE},
    )


def _gpu_type(session: Session, offer: GpuTypeOffer, pointer: str) -> None:
    """The figures of a type are those that were reported last."""
    try:
        gpu = GpuType(
            name=offer.name,
            sustained_flops=offer.sustained_flops,
            memory_bytes=offer.memory_bytes,
            power_w=offer.power_w,
            idle_w=offer.idle_w,
            intra_region_bps=_intra_region_bps(offer.name),
        )
    except InvalidValueError as error:
        raise InvalidInputError(str(error), errors=(FieldError(pointer, str(error)),)) from error
    figures = {"memory_bytes": gpu.memory_bytes, "power_w": gpu.power_w, "idle_w": gpu.idle_w}
    known = cluster.gpu_type(session, offer.name)
    if known is None:
        cluster.add_gpu_type(
            session, GpuTypeRecord(offer.name, **figures, intra_region_bps=gpu.intra_region_bps, version=1)
        )
    elif figures != {name: getattr(known, name) for name in figures}:
        cluster.change_gpu_type(session, known, **figures)


def _intra_region_bps(name: str) -> float:
    """Nobody measures the network between the nodes of a region: the preset's figure, else the default."""
    try:
        return presets.gpu(name).intra_region_bps
    except UnknownPresetError:
        return GpuType(name, 1.0, 1.0, 0.0, 0.0).intra_region_bps


def _pool(session: Session, offer: NodeOffer) -> None:
    if cluster.pool(session, offer.region, offer.gpu.name) is None:
        cluster.add_pool(session, PoolRecord(offer.region, offer.gpu.name, Ownership.OWNED.value, 1))


def _node(session: Session, agent_id: str, offer: NodeOffer, credential: Credential, moment: Moment) -> None:
    known = cluster.node(session, offer.node_id)
    record = NodeRecord(
        node_id=offer.node_id,
        agent_id=agent_id,
        region=offer.region,
        gpu_type=offer.gpu.name,
        gpus=offer.gpus,
        address=offer.address,
        interface=offer.interface,
        port_first=offer.port_first,
        port_last=offer.port_last,
        sustained_flops=offer.gpu.sustained_flops,
        measured_at_s=offer.gpu.measured_at_s,
        state=NodeState.READY.value if known is None else known.state,
        version=1 if known is None else known.version,
    )
    if known is None:
        cluster.add_node(session, record)
        record_birth(
            session, "node", offer.node_id, record.state, SHARED_PROJECT, moment, region=offer.region
        )
        return
    _check_owner(known, record, credential)
    _check_same_kind(session, known, record)
    if known != record:
        changes = {name: value for name, value in asdict(record).items() if value != getattr(known, name)}
        cluster.change_node(session, known, **changes)
        record = replace(record, version=known.version + 1)
    if record.state == NodeState.LOST or (
        record.state == NodeState.CORDONED
        and control_queries.last_event_data(session, "node", record.node_id).get("cause") in BACK_BY_JOINING
    ):
        move_node(session, record, NodeState.READY, moment)


def _check_owner(known: NodeRecord, offered: NodeRecord, credential: Credential) -> None:
    """A machine that was set up anew has another agent: a token to join with gives it the node that is lost. What an
    agent was given for itself gives it no other agent's node, however silent that is."""
    if known.agent_id == offered.agent_id:
        return
    if known.state != NodeState.LOST:
        raise ForbiddenError(
            f"node {known.node_id} belongs to agent {known.agent_id}: choose another node id"
        )
    if credential.is_identity:
        raise ForbiddenError(
            f"node {known.node_id} belongs to agent {known.agent_id}: choose another node id, or join with a token of "
            "`bace node token create`"
        )


def _check_same_kind(session: Session, known: NodeRecord, offered: NodeRecord) -> None:
    same_kind = (known.region, known.gpu_type) == (offered.region, offered.gpu_type)
    if same_kind and offered.gpus >= known.gpus:
        return
    if agent_queries.live_processes_on(session, [known.node_id]):
        raise ConflictError(
            f"node {known.node_id} was {known.gpus} × {known.gpu_type} in {known.region} and has work on it: "
            "join as that, or under another node id"
        )
