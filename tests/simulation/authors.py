"""Who has changed what: agents their own nodes' objects alone, people nothing without a row in the audit log."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tests.simulation.rows import Change
from tests.simulation.trace import Trace

_ON_ITS_NODES = {
    "node": "SELECT count(*) FROM nodes WHERE node_id = ? AND agent_id = ?",
    "process": "SELECT count(*) FROM processes p JOIN nodes n ON n.node_id = p.node_id "
    "WHERE p.key = ? AND n.agent_id = ?",
    "allocation": "SELECT count(*) FROM processes p JOIN nodes n ON n.node_id = p.node_id "
    "WHERE p.allocation_id = ? AND n.agent_id = ?",
    "job": "SELECT count(*) FROM processes p JOIN nodes n ON n.node_id = p.node_id "
    "WHERE p.job_id = ? AND n.agent_id = ?",
}
"""How many objects of that kind and id the agent has to do with."""


class Authors:
    """Judges the events and rows of one commit."""

    def __init__(self, driver: sqlite3.Connection, trace: Trace) -> None:
        self._driver = driver
        self._trace = trace
        self._is_person: dict[str, bool] = {}
        """By id of a token."""

    def look(self, changes: Sequence[Change]) -> None:
        """`told by` and `audited` of one commit."""
        audited = {(change.name, change.new) for change in changes if change.what == "audited"}
        who_was_audited = {token_id for token_id, _ in audited}
        for change in changes:
            if change.what != "told by":
                continue
            kind, _, name = change.name.partition(" ")
            actor = str(change.new)
            if actor.startswith("agent-"):
                self._of_agent(kind, name, change.old, actor)
            elif self._of_person(actor):
                # What a request changes beside its object (jobs on a node that is drained) needs no row of its own.
                is_its_object = kind == "job" and change.old is None
                if (actor, name) not in audited and (is_its_object or actor not in who_was_audited):
                    self._trace.violation(
                        "every change has its row in the audit log", f"{kind} {name} by {actor}"
                    )

    def used(self, change: Change) -> None:
        """A token was given to an agent: one that lets somebody join does so once."""
        if change.old is not None:
            self._trace.violation(
                "a token to join with is used once", f"{change.name}: {change.old}, then {change.new}"
            )
        self._trace.sometimes("a token to join with was used")

    def _of_agent(self, kind: str, name: str, old: str | None, agent_id: str) -> None:
        if kind not in _ON_ITS_NODES or (
            kind == "job" and old == "rejected"
        ):  # capacity came: all are looked at
            return
        if not self._driver.execute(_ON_ITS_NODES[kind], (name, agent_id)).fetchone()[0]:
            self._trace.violation("an agent changes its own alone", f"{agent_id} has changed {kind} {name}")

    def _of_person(self, actor: str) -> bool:
        if actor not in self._is_person:
            found = self._driver.execute("SELECT role FROM tokens WHERE token_id = ?", (actor,)).fetchone()
            self._is_person[actor] = found is not None and found[0] != "agent"
        return self._is_person[actor]
