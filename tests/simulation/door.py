"""Who may speak for which node: judged by the tables alone, for every request of an agent before it is served."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any

import httpx
from pydantic_core import from_json

from agents.protocol import NodeIdentity
from tests.simulation.clocks import START_S
from tests.simulation.trace import Trace

JOIN, BEAT = "/agent/v1/join", "/agent/v1/heartbeat"
CLOCKS_S = 1.0
"""No clock of a replica is further off than that: until then an end may be seen or not."""
REMEMBERED_S = 3.0
"""A replica may remember a secret for so long after another one has taken its place."""
REFUSALS = (401, 403)


class Doorkeeper:
    """Knows of every request on the agents' wire whether it may be granted."""

    def __init__(self, driver: sqlite3.Connection, trace: Trace) -> None:
        self._driver = driver
        self._trace = trace
        self._good_at_s: dict[str, float] = {}
        """SHA-256 of a secret → when it was last shown and good."""

    def forbids(self, request: httpx.Request) -> str | None:
        """Why this must not be granted now; None where it may be."""
        if request.url.path not in (JOIN, BEAT):
            return None
        text = request.headers.get("Authorization", "").removeprefix("Bearer ")
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        row = self._driver.execute(
            "SELECT revoked_at_s, expires_at_s, agent_id, single_use, region, previous_until_s, sha256 FROM tokens "
            "WHERE sha256 = ?1 OR previous_sha256 = ?1",
            (sha256,),
        ).fetchone()
        now_s = self._trace.loop.time()
        if row is None:
            was_good = now_s - self._good_at_s.get(sha256, -REMEMBERED_S) < REMEMBERED_S
            return None if was_good else "unknown"
        revoked_s, expires_s, agent_id, single_use, region, previous_until_s, current = row
        ends_s = expires_s if current == sha256 else previous_until_s
        body = from_json(request.content)
        if revoked_s is not None:
            return "revoked"
        if ends_s is not None and ends_s < START_S + now_s - CLOCKS_S:
            return "expired"
        self._good_at_s[sha256] = now_s
        if agent_id is not None and agent_id != body["agent_id"]:
            return "another agent's"
        if single_use and request.url.path == BEAT:
            return "for joining only"
        is_identity = agent_id is not None and not single_use
        return self._forbids_nodes(body, region if single_use else None, may_replace=not is_identity)

    def judge_refusal(self, identity: NodeIdentity) -> None:
        """An agent was refused with its identity: it may have ended or been revoked, but not be void."""
        sha256 = hashlib.sha256(identity.token.encode()).hexdigest()
        known = self._driver.execute(
            "SELECT count(*) FROM tokens WHERE sha256 = ?1 OR previous_sha256 = ?1", (sha256,)
        ).fetchone()[0]
        if not known and identity.expires_at_s > START_S + self._trace.loop.time() + CLOCKS_S:
            self._trace.violation("an agent is left with a secret that opens", "its identity is void")

    def _forbids_nodes(self, body: dict[str, Any], region: str | None, *, may_replace: bool) -> str | None:
        """`may_replace`: with what is for joining, a lost node may be had by another agent."""
        for node in body.get("nodes", ()):
            found = self._driver.execute(
                "SELECT agent_id, state FROM nodes WHERE node_id = ?", (node["node_id"],)
            ).fetchone()
            is_others = found is not None and found[0] != body["agent_id"]
            if is_others and not (may_replace and found[1] == "lost"):
                return "for another agent's node"
            if region not in (None, node["region"]):
                return "for another region"
        return None

    def judge(self, why: str | None, request: httpx.Request, status: int, commit: int) -> None:
        """What came of a request: `why` it was forbidden when it came, and the commit that it has made, if any."""
        if why is not None and 200 <= status < 300:
            self._trace.violation(
                "what opens nothing changes nothing", f"{why}: {request.url.path} {request.content[:120]!r}"
            )
        if request.url.path in (JOIN, BEAT) and status in REFUSALS:
            self._trace.sometimes(f"an agent was refused: {why}" if why else "an agent was refused")
            if commit:
                self._trace.violation(
                    "what is refused changes nothing", f"{request.url.path} {status}: commit {commit}"
                )
