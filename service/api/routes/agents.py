"""`/agent/v1`: the agents' wire. What it means is in `agents.protocol`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header

from agents.protocol import (
    ABILITIES_HEADER,
    ANSWERED_HEADER,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
)
from service import agents_link
from service.access import Credential
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS
from service.api.wire_route import WireRoute
from service.errors import FieldError, InvalidInputError

router = APIRouter(prefix="/agent/v1", tags=["agents"], route_class=WireRoute, responses=REFUSALS)

ProtocolHeader = Annotated[str, Header(alias=PROTOCOL_HEADER, max_length=8)]
AbilitiesHeader = Annotated[str, Header(alias=ABILITIES_HEADER, max_length=256)]
AnsweredHeader = Annotated[float | None, Header(alias=ANSWERED_HEADER, ge=0.0, le=1e10, allow_inf_nan=False)]


@router.post("/join", response_model=JoinReply)
async def join(
    services: Injected,
    principal: Caller,
    request: JoinRequest,
    protocol: ProtocolHeader = str(PROTOCOL_VERSION),
) -> JoinReply:
    """An agent says who it is and what it has. Idempotent by its id."""
    _check_protocol(protocol)
    return await agents_link.join(services, principal.credential or Credential(principal.token_id), request)


@router.post("/heartbeat", response_model=HeartbeatReply)
async def heartbeat(
    services: Injected,
    principal: Caller,
    beat: Heartbeat,
    protocol: ProtocolHeader = str(PROTOCOL_VERSION),
    abilities: AbilitiesHeader = "",
    answered_s: AnsweredHeader = None,
) -> HeartbeatReply:
    """Report up, and everything that should run down."""
    _check_protocol(protocol)
    credential = principal.credential or Credential(principal.token_id)
    return await agents_link.heartbeat(services, credential, beat, _abilities(abilities), answered_s)


def _abilities(told: str) -> frozenset[str]:
    return frozenset(told.split(",")) - {""}


def _check_protocol(version: str) -> None:
    if version != str(PROTOCOL_VERSION):
        expected = f"{PROTOCOL_VERSION}: install the agent of this server's version"
        raise InvalidInputError(
            f"{PROTOCOL_HEADER}: expected {expected}",
            errors=(
                FieldError(
                    f"/{PROTOCOL_HEADER.lower()}", f"expected {expected}", value=version, where="header"
                ),
            ),
        )
