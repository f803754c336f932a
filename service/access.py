"""Who calls: an account's roles, the one that its token carries, and what follows from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from service.db.scope import EVERYTHING, Scope
from service.db.tables import SHARED_PROJECT
from service.lifecycle import Moment


class Role(StrEnum):
    """What may be done. Which route is open to which role is said by `service/api/access.py`."""

    ADMIN = "admin"
    PROJECT_ADMIN = "project-admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    AGENT = "agent"


class AccountKind(StrEnum):
    """A person, or a program."""

    USER = "user"
    SERVICE = "service"


_RANK: Mapping[Role, int] = MappingProxyType(
    {Role.VIEWER: 1, Role.SUBMITTER: 2, Role.PROJECT_ADMIN: 3, Role.ADMIN: 4}
)
_PLATFORM = frozenset({Role.ADMIN, Role.AGENT, Role.VIEWER})
"""Roles that can be held in all projects at once."""
_IN_PROJECT = frozenset({Role.PROJECT_ADMIN, Role.SUBMITTER, Role.VIEWER})


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a project; `*` is all of them."""

    role: Role
    project: str

    @property
    def is_possible(self) -> bool:
        """Administrators and agents stand above projects, project administrators and submitters in one."""
        return self.role in (_PLATFORM if self.project == SHARED_PROJECT else _IN_PROJECT)

    def covers(self, other: Grant) -> bool:
        """Whether whoever holds this may do all that the other allows: nobody can give more."""
        if self.role is Role.ADMIN:
            return True
        if self.project not in (SHARED_PROJECT, other.project):
            return False
        if Role.AGENT in (self.role, other.role):
            return self == other
        return _RANK[self.role] >= _RANK[other.role]


def any_covers(held: Iterable[Grant], wanted: Grant) -> bool:
    """Whether one of several grants is enough."""
    return any(grant.covers(wanted) for grant in held)


@dataclass(frozen=True, slots=True)
class Credential:
    """What an agent has shown: a token that any agent may use, one to join with once, or the identity of one agent."""

    token_id: str
    sha256: str = ""
    """Of the secret that was shown."""
    agent_id: str | None = None
    """The agent that has used it, if it is for single use; else the agent whose identity it is."""
    single_use: bool = False
    renew_at_s: float | None = None
    """From when on an identity gets a new secret."""
    newest_sha256: str = ""
    """Of the newest secret of the token when it was recognised: that which was shown, unless it was rotated."""
    replaces_another: bool = False
    """The secret that was shown is the newest, and the one before it is not ended yet."""

    @property
    def is_identity(self) -> bool:
        return self.agent_id is not None and not self.single_use


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller that has shown a valid token. `project` is `*` for one who sees all projects."""

    token_id: str
    name: str
    role: Role
    project: str
    sha256: str
    """Of the secret that was shown: during the overlap of a rotation a token has two."""
    account_id: str
    account: str
    expires_at_s: float | None = None
    """When its token ends."""
    credential: Credential | None = None
    """Of an agent."""

    @property
    def grant(self) -> Grant:
        """What its token allows."""
        return Grant(self.role, self.project)

    @property
    def scope(self) -> Scope:
        """The rows the caller may see."""
        return EVERYTHING if self.project == SHARED_PROJECT else Scope(self.project)

    def moment(self, at_s: float) -> Moment:
        """For the history: the caller does something now."""
        return Moment(at_s, self.token_id)


def sha256_of(token: str) -> str:
    """What of a token is stored. It has 256 random bits, so a plain hash cannot be turned back."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
