"""How a node gets a credential of its own, keeps it and loses it.

    bace node token create → a token that lets one agent join, once, for a while, in one region if that is named
    join                   → an identity: a token of that agent alone, which ends by itself
    heartbeat              → a new secret when two thirds of its life are over; the one before is good until the new one
                             is shown, or its own end
    bace node revoke       → nothing of the agent opens anything any more, until it joins with a new token

A reply may be lost: the agent that used a token may use it again until it has shown its identity, and a secret that did
not reach its agent is replaced by another. A request may come twice, and late: an identity is void because another was
shown, not because another was given, and from then on nobody who shows an older secret is given one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agents.protocol import JoinRequest
from service.access import Credential, Grant, Principal, Role, any_covers, sha256_of
from service.accounts import find as find_account
from service.accounts import grants_of
from service.authentication import Authenticator
from service.db.records import AccountRecord, AgentRecord, TokenRecord
from service.db.repositories import access, accounts, cluster, events
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import (
    FieldError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
)
from service.lifecycle import Moment, NodeState, move_node
from service.nodes import NodeView, find, view_node
from service.services import Services
from service.tokens import PREFIX, SHOWN_CHARACTERS, NewToken

REVOKED = "revoked"
"""Why a node is cordoned whose agent was revoked."""
IDENTITY_NAME = "node identity"


@dataclass(frozen=True, slots=True)
class Secret:
    """A token id and a text that nobody has had before."""

    token_id: str
    text: str

    @classmethod
    def new(cls, services: Services) -> Secret:
        return cls(services.ids.new("token"), PREFIX + services.ids.secret())


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What is asked for. `account` is a name; None: the caller's own."""

    name: str
    lifetime_s: float
    region: str | None = None
    account: str | None = None


async def create_join_token(services: Services, principal: Principal, wanted: JoinToken) -> NewToken:
    """Makes a token for the first join of one agent. Raises InvalidInputError for an account that may have none."""
    secret, now_s = Secret.new(services), services.clock.now()

    def work(session: Session) -> NewToken:
        account = _account(session, principal, wanted.account)
        record = replace(
            _token(secret, account.account_id, wanted.name, now_s, wanted.lifetime_s),
            single_use=True,
            region=wanted.region,
        )
        access.add_token(session, record)
        _tell(session, record, "token.created", Moment(now_s, principal.token_id))
        return NewToken(record, account.name, secret.text)

    return await services.db.run(work)


def use(session: Session, credential: Credential, request: JoinRequest) -> TokenRecord:
    """The token of a join, which is the agent's from now on if it is for single use.

    Raises UnauthenticatedError for one that has been used up, ForbiddenError for another agent's, or another region.
    """
    record = access.token(session, EVERYTHING, credential.token_id)
    if record is None or record.revoked_at_s is not None:
        raise UnauthenticatedError(
            "this token has been used or revoked: make another (`bace node token create`)"
        )
    if record.agent_id is not None and record.agent_id != request.agent_id:
        raise ForbiddenError(
            f"agent {request.agent_id}: this token is that of another agent: make one for this node "
            "(`bace node token create`)"
        )
    if record.single_use:
        elsewhere = [node for node in request.nodes if record.region not in (None, node.region)]
        if elsewhere:
            raise ForbiddenError(
                f"node {elsewhere[0].node_id}: this token is for nodes in {record.region}, not {elsewhere[0].region}"
            )
        access.claim_token(session, record.token_id, request.agent_id)
    return record


def issue(
    session: Session,
    secret: Secret,
    joined_with: TokenRecord,
    agent_id: str,
    moment: Moment,
    lifetime_s: float,
) -> TokenRecord:
    """An identity for an agent that has joined. One that it was given before is void when another is shown: until
    then it is not known which answer has reached it."""
    record = replace(
        _token(secret, joined_with.account_id, IDENTITY_NAME, moment.at_s, lifetime_s), agent_id=agent_id
    )
    access.add_token(session, record)
    _tell(session, record, "token.created", moment)
    return record


def accept(session: Session, agent: AgentRecord, credential: Credential, moment: Moment) -> bool:
    """The agent shows its identity for the first time: nothing else speaks for it from now on. False if it is none."""
    if credential.agent_id != agent.agent_id or not credential.is_identity:
        return False
    record = access.token(session, EVERYTHING, credential.token_id)
    if record is None or record.revoked_at_s is not None:
        return False
    cluster.change_agent(session, agent.agent_id, token_id=record.token_id)
    others = [each for each in access.tokens_of_agent(session, agent.agent_id) if each != record]
    _revoke(session, others, moment)
    return True


async def renewed(services: Services, credential: Credential) -> tuple[str, float] | None:
    """A new secret for an identity that is due, and its end; None for any other.

    One that is shown has reached its agent: the one before opens nothing any more, and asks for no other.
    """
    if not credential.is_identity:
        return None
    if credential.replaces_another:
        await services.db.run(
            lambda session: access.end_previous(session, credential.token_id, credential.sha256)
        )
    now_s = services.clock.now()
    if credential.renew_at_s is None or now_s < credential.renew_at_s:
        return None
    text, expires_at_s = PREFIX + services.ids.secret(), now_s + services.settings.node_identity_lifetime_s

    def work(session: Session) -> bool:
        record = access.token(session, EVERYTHING, credential.token_id)
        if record is None or record.revoked_at_s is not None or record.sha256 != credential.newest_sha256:
            return False  # or renewed for another heartbeat meanwhile: that secret may have reached the agent
        shown_is_current = record.sha256 == credential.sha256
        if not shown_is_current and record.previous_sha256 != credential.sha256:
            return False  # the newest was shown meanwhile
        made = replace(
            record,
            sha256=sha256_of(text),
            prefix=text[:SHOWN_CHARACTERS],
            expires_at_s=expires_at_s,
            previous_sha256=credential.sha256,
            previous_until_s=record.expires_at_s if shown_is_current else record.previous_until_s,
            rotated_at_s=now_s,
        )
        if not access.rotate_token(session, record, made):
            return False
        _tell(session, made, "token.rotated", Moment(now_s, str(credential.agent_id)))
        return True

    return (text, expires_at_s) if await services.db.run(work) else None


async def revoke(
    services: Services, authenticator: Authenticator, principal: Principal, node_id: str
) -> NodeView:
    """Nothing that the node's agent has opens anything any more, and its nodes take no more work. Its workers end with
    its lease. Again changes nothing. Raises NotFoundError, AmbiguousIdError."""
    now_s = services.clock.now()
    moment = principal.moment(now_s)

    def work(session: Session) -> tuple[NodeView, Sequence[TokenRecord]]:
        node = find(session, node_id)
        agent = cluster.agent(session, node.agent_id)
        if agent is None:
            raise NotFoundError(f"the agent {node.agent_id} of node {node.node_id} is not known")
        ended = access.tokens_of_agent(session, agent.agent_id)
        _revoke(session, ended, moment)
        if agent.revoked_at_s is None:
            cluster.change_agent(session, agent.agent_id, revoked_at_s=now_s)
            for each in cluster.nodes_of_agent(session, agent.agent_id):
                if each.state == NodeState.READY:
                    move_node(session, each, NodeState.CORDONED, moment, data={"cause": REVOKED})
            events.append(
                session,
                project=SHARED_PROJECT,
                at_s=now_s,
                kind="agent.revoked",
                object_kind="agent",
                object_id=agent.agent_id,
                actor=moment.actor,
            )
        return view_node(session, find(session, node.node_id), now_s), ended

    view, ended = await services.db.run(work)
    for token in ended:
        authenticator.forget_token(token)
    return view


def _revoke(session: Session, ended: Sequence[TokenRecord], moment: Moment) -> None:
    for record in ended:
        if access.revoke_token(session, record.token_id, moment.at_s):
            _tell(session, record, "token.revoked", moment)


def _token(secret: Secret, account_id: str, name: str, now_s: float, lifetime_s: float) -> TokenRecord:
    return TokenRecord(
        token_id=secret.token_id,
        account_id=account_id,
        project=SHARED_PROJECT,
        name=name,
        role=Role.AGENT.value,
        prefix=secret.text[:SHOWN_CHARACTERS],
        sha256=sha256_of(secret.text),
        created_at_s=now_s,
        expires_at_s=now_s + lifetime_s,
        revoked_at_s=None,
    )


def _account(session: Session, principal: Principal, name: str | None) -> AccountRecord:
    if name is None:
        own = accounts.get(session, principal.account_id)
        if own is None:
            raise NotFoundError(f"account {principal.account} is gone")
        return own
    account = find_account(session, principal, name)
    if not any_covers(grants_of(session, account.account_id), Grant(Role.AGENT, SHARED_PROJECT)):
        raise InvalidInputError(
            f"account: {name} does not hold the role agent: grant it first (`bace account grant`)",
            errors=(FieldError("/account", "expected an account that holds the role agent", value=name),),
        )
    return account


def _tell(session: Session, record: TokenRecord, kind: str, moment: Moment) -> None:
    data = {"name": record.name, "role": record.role, "agent_id": record.agent_id}
    events.append(
        session,
        project=record.project,
        at_s=moment.at_s,
        kind=kind,
        object_kind="token",
        object_id=record.token_id,
        actor=moment.actor,
        data={name: value for name, value in data.items() if value is not None},
    )
