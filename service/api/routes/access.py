"""`/v1/tokens`, `/v1/whoami`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from service import node_identity, tokens
from service.access import Role
from service.api.access import Caller, Injected, Tokens
from service.api.answers import REFUSALS
from service.api.schemas.access import CreateJoinToken, CreateToken, NewToken, RotateToken, Token, WhoAmI
from service.api.schemas.base import Page, flat
from service.api.strict_json import StrictRoute
from service.node_identity import JoinToken
from service.tokens import TokenRequest

TokenPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]

router = APIRouter(prefix="/v1", tags=["access"], route_class=StrictRoute, responses=REFUSALS)


@router.get("/whoami", response_model=WhoAmI)
async def who_am_i(principal: Caller) -> WhoAmI:
    """What the token that asks is for."""
    return WhoAmI.model_validate(principal)


@router.get("/tokens", response_model=Page[Token])
async def list_tokens(services: Injected, principal: Caller) -> Page[Token]:
    """All tokens that the caller may see, revoked ones included, without their text."""
    found = await tokens.list_all(services, principal)
    return Page(items=[Token.of(view.record, view.account) for view in found])


@router.post("/tokens", status_code=201, response_model=NewToken)
async def create_token(
    services: Injected, principal: Caller, response: Response, body: CreateToken
) -> NewToken:
    """Make a token of the caller's own account, or of another; for a role that neither lacks. Its text is in this
    answer, and never shown again."""
    request = TokenRequest(
        body.name, Role(body.role), body.project, body.expires_in_s, body.account, body.never_expires
    )
    return _new(response, await tokens.create(services, principal, request))


@router.post("/join-tokens", status_code=201, response_model=NewToken)
async def create_join_token(
    services: Injected, principal: Caller, response: Response, body: CreateJoinToken
) -> NewToken:
    """Make a token with which one agent may join, once. Its text is in this answer, and never shown again."""
    wanted = JoinToken(body.name, body.expires_in_s, body.region, body.account)
    return _new(response, await node_identity.create_join_token(services, principal, wanted))


@router.post("/tokens/{token_id}/rotate", response_model=NewToken)
async def rotate_token(
    services: Injected,
    principal: Caller,
    known: Tokens,
    response: Response,
    token_id: TokenPath,
    body: RotateToken,
) -> NewToken:
    """Give a token a new secret; the one before stays valid for `overlap_s`. Everybody may rotate their own."""
    made = await tokens.rotate(
        services, known, principal, token_id, overlap_s=body.overlap_s, expires_in_s=body.expires_in_s
    )
    return _new(response, made)


@router.post("/tokens/{token_id}/revoke", response_model=Token)
async def revoke_token(services: Injected, principal: Caller, known: Tokens, token_id: TokenPath) -> Token:
    """End a token, now and for ever; streams that it opened end too."""
    view = await tokens.revoke(services, known, principal, token_id)
    return Token.of(view.record, view.account)


def _new(response: Response, made: tokens.NewToken) -> NewToken:
    response.headers["Cache-Control"] = "no-store"
    return NewToken.model_validate(flat(made.record, account=made.account, token=made.text))
