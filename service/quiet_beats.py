"""Heartbeats that bring no news: most of them. All that have come in together are read and stamped at once.

A heartbeat is quiet where its agent is known by its token, none of its nodes is lost, no report is new, what it says of
its processes is what the rows say, and it has measured no link. It changes nothing but the time at which its agent was
heard. Any other is left to `agents_link.heartbeat`, which does the same for a quiet one, one by one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from agents.protocol import LINK_TESTS, Heartbeat, LinkTest, StageProcess
from service import link_measurements
from service.db import agent_queries
from service.db.agent_queries import Heard, LiveProcess
from service.db.records import AgentRecord
from service.lifecycle import ENDED_PROCESS_STATES, PENDING, NodeState

ROUNDING_S = 1e-5
"""Of sums of epoch times: two heartbeats of an agent are never so close."""
MAX_LAUNCHES = 20_000
"""Launch documents that are remembered; beyond, the oldest are read again."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, the token that it came with, and what its agent can beside the rest."""

    token_id: str
    heartbeat: Heartbeat
    abilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Quiet:
    """What a quiet heartbeat is answered."""

    reports_stored: int
    desired: tuple[StageProcess, ...]
    is_next: bool
    link_tests: tuple[LinkTest, ...] = ()


class Launches:
    """What processes are started with. A key is never used twice and its document never changes, so it may be
    remembered, whoever changes the database."""

    def __init__(self) -> None:
        self._known: dict[str, StageProcess] = {}

    def of(self, session: Session, keys: Sequence[str]) -> dict[str, StageProcess]:
        """By key."""
        unknown = [key for key in keys if key not in self._known]
        for key, document in agent_queries.launches(session, unknown).items():
            self._known[key] = StageProcess.model_validate(document)
        found = {key: self._known[key] for key in keys}
        while len(self._known) > MAX_LAUNCHES:
            del self._known[next(iter(self._known))]
        return found


def stamp_quiet(
    session: Session, beats: Sequence[Beat], launches: Launches, at_s: float
) -> list[Quiet | None]:
    """Store the quiet ones among these; what each is answered, None for one that is not quiet."""
    ids = sorted({beat.heartbeat.agent_id for beat in beats})
    agents = agent_queries.agents_with_ids(session, ids)
    agent_of_node, upset = {}, set()
    for node_id, agent_id, state in agent_queries.node_states_of(session, ids):
        agent_of_node[node_id] = agent_id
        if state == NodeState.LOST:
            upset.add(agent_id)
    live: dict[str, dict[str, LiveProcess]] = defaultdict(dict)
    for process in agent_queries.live_states_on(session, sorted(agent_of_node)):
        live[agent_of_node[process.node_id]][process.key] = process
    quiet = [
        beat.heartbeat.agent_id not in upset
        and _is_quiet(beat, agents.get(beat.heartbeat.agent_id), live[beat.heartbeat.agent_id])
        for beat in beats
    ]
    calm = [beat.heartbeat for beat, is_quiet in zip(beats, quiet, strict=True) if is_quiet]
    agent_queries.heard_all(
        session, [Heard(beat.agent_id, beat.boot_id, beat.clock_s - at_s) for beat in calm], at_s
    )
    following = _following(agents, beats)
    wanted = [process.key for beat in calm for process in live[beat.agent_id].values() if _is_wanted(process)]
    documents = launches.of(session, wanted)
    able = {beat.heartbeat.agent_id for beat in beats if LINK_TESTS in beat.abilities}
    measuring = link_measurements.wanted(session, able) if able else {}
    return [
        Quiet(
            agents[beat.heartbeat.agent_id].reports_stored,
            tuple(
                documents[process.key]
                for process in live[beat.heartbeat.agent_id].values()
                if _is_wanted(process)
            ),
            follows,
            tuple(measuring.get(beat.heartbeat.agent_id, ())),
        )
        if is_quiet
        else None
        for beat, is_quiet, follows in zip(beats, quiet, following, strict=True)
    ]


def _following(agents: Mapping[str, AgentRecord], beats: Sequence[Beat]) -> list[bool]:
    """Whether each is the next of its agent; of copies that come together one is."""
    newest: dict[str, float] = {}
    following = []
    for beat in (each.heartbeat for each in beats):
        agent = agents.get(beat.agent_id)
        follows = agent is not None and is_next(agent, beat)
        follows = follows and beat.clock_s > newest.get(beat.agent_id, -math.inf)
        if follows:
            newest[beat.agent_id] = beat.clock_s
        following.append(follows)
    return following


def is_next(agent: AgentRecord, beat: Heartbeat) -> bool:
    """Whether the beat was sent after the last one that was stored, by the agent's own clock and life.

    Only then does its silence about a process say anything: a beat that was delayed on the way does not know what has
    been started since. And only then does the agent take the answer for news: one to a late copy reaches nobody.
    """
    last_clock_s = agent.heartbeat_at_s + agent.clock_offset_s
    return agent.boot_id == beat.boot_id and beat.clock_s - last_clock_s > ROUNDING_S


def _is_quiet(beat: Beat, agent: AgentRecord | None, live: Mapping[str, LiveProcess]) -> bool:
    if agent is None or agent.token_id != beat.token_id or agent.revoked_at_s is not None:
        return False
    if agent.measures_links != (LINK_TESTS in beat.abilities):
        return False
    told = beat.heartbeat
    if told.link_tests or any(report.seq > agent.reports_stored for report in told.reports):
        return False
    for report in told.processes:
        process = live.get(report.key)
        if process is None or process.state != report.state.value or process.state in ENDED_PROCESS_STATES:
            return False
    named = {report.key for report in told.processes}
    return all(
        process.state in ENDED_PROCESS_STATES or (process.state == PENDING and process.desired)
        for key, process in live.items()
        if key not in named
    )


def _is_wanted(process: LiveProcess) -> bool:
    return process.desired and process.state not in ENDED_PROCESS_STATES
