"""Who calls: a token's role and project, and what follows from them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from service.db.scope import EVERYTHING, Scope
from service.db.tables import SHARED_PROJECT
from service.lifecycle import Moment


class Role(StrEnum):
    """What a token is for. Which route is open to which role is said by `service/api/access.py`."""

    ADMIN = "admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller that has shown a valid token. `project` is `*` for one who sees all projects."""

    token_id: str
    name: str
    role: Role
    project: str
    sha256: str

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
