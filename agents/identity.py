"""The agent's identity: a credential of its own, given at its first join and renewed with its heartbeats.

It lies in the work folder, readable by its owner alone, and goes with the journal: an agent that has lost its folder is
another agent, and joins anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from agents.protocol import NodeIdentity
from agents.workdir import write_file


class IdentityStore(Protocol):
    """Where the identity is kept."""

    def read(self) -> NodeIdentity | None:
        """None where there is none, or none that can be read."""
        ...

    def write(self, identity: NodeIdentity) -> None:
        """Whole or not at all, on disk when it returns; OSError."""
        ...


class IdentityFile:
    """`IdentityStore` in a file (0600). Links are not followed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> NodeIdentity | None:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(file, encoding="utf-8") as stream:
            try:
                return NodeIdentity.model_validate(json.load(stream))
            except (ValidationError, ValueError):
                return None

    def write(self, identity: NodeIdentity) -> None:
        write_file(self._path, identity.model_dump(mode="json"))


class Credentials:
    """Which token the agent shows: its identity, if it has one, else the one that it was given to join with."""

    def __init__(self, given: str, store: IdentityStore | None = None) -> None:
        self._given = given
        self._store = store
        self._identity = None if store is None else store.read()
        self._shows_given = self._identity is None

    @property
    def token(self) -> str:
        """What to show now."""
        return self._given if self._identity is None or self._shows_given else self._identity.token

    @property
    def wants_identity(self) -> bool:
        """Whether to ask for one when joining."""
        return self._store is not None and self._shows_given

    def keep(self, identity: NodeIdentity) -> None:
        """Show it from now on, once it is on disk. Raises OSError; then the one before is still shown."""
        if self._store is not None:
            self._store.write(identity)
            self._identity, self._shows_given = identity, False

    def refused(self) -> bool:
        """What was shown opens nothing: show the other. False where there is no other."""
        if self._identity is None or not self._given:
            return False
        self._shows_given = not self._shows_given
        return True
