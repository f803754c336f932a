"""`/v1/nodes`: hosts, and taking them out of planning."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from service import node_identity, nodes
from service.api.access import Caller, Injected, Tokens
from service.api.answers import REFUSALS, ObjectId
from service.api.etags import etag, wanted_version
from service.api.schemas.base import Page
from service.api.schemas.cluster import Drained, Node
from service.api.strict_json import StrictRoute
from service.nodes import NodeView

router = APIRouter(prefix="/v1/nodes", tags=["cluster"], route_class=StrictRoute, responses=REFUSALS)
Version = Annotated[int | None, Depends(wanted_version)]


@router.get("", response_model=Page[Node])
async def list_nodes(services: Injected, principal: Caller) -> Page[Node]:
    """All nodes, by id."""
    return Page(items=[Node.of(view) for view in await nodes.list_all(services)])


@router.get("/{node_id}", response_model=Node)
async def show(services: Injected, principal: Caller, response: Response, node_id: ObjectId) -> Node:
    """One node, by its id or a prefix of it that fits no other."""
    return _answer(response, await nodes.show(services, node_id))


@router.post("/{node_id}/cordon", response_model=Node)
async def cordon(
    services: Injected, principal: Caller, response: Response, node_id: ObjectId, version: Version
) -> Node:
    """Nothing new is placed on the node; what runs goes on. Again changes nothing."""
    return _answer(response, await nodes.cordon(services, principal, node_id, version))


@router.post("/{node_id}/uncordon", response_model=Node)
async def uncordon(
    services: Injected, principal: Caller, response: Response, node_id: ObjectId, version: Version
) -> Node:
    """The node takes jobs again. Again changes nothing."""
    return _answer(response, await nodes.uncordon(services, principal, node_id, version))


@router.post("/{node_id}/drain", response_model=Drained)
async def drain(
    services: Injected, principal: Caller, response: Response, node_id: ObjectId, version: Version
) -> Drained:
    """Cordon the node, and restart elsewhere what runs on it and may be stopped (elasticity restart or resize)."""
    drained = await nodes.drain(services, principal, node_id, version)
    response.headers["ETag"] = etag(drained.view.node.version)
    return Drained(
        node=Node.of(drained.view), restarting=list(drained.restarting), staying=list(drained.staying)
    )


@router.post("/{node_id}/revoke", response_model=Node)
async def revoke(
    services: Injected, principal: Caller, known: Tokens, response: Response, node_id: ObjectId
) -> Node:
    """Make everything void that the node's agent could show. Its nodes take no more work, and its workers end with its
    lease, until it joins with a new token."""
    return _answer(response, await node_identity.revoke(services, known, principal, node_id))


def _answer(response: Response, view: NodeView) -> Node:
    response.headers["ETag"] = etag(view.node.version)
    return Node.of(view)
