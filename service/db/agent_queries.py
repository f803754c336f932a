"""What a heartbeat stores in bulk: steps, log lines, busy fractions; and what it is answered."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from sqlalchemy import String, Table, bindparam, delete, func, select, update
from sqlalchemy import cast as sql_cast

from service.db.parts import parts
from service.db.reader import Reader
from service.db.records import AgentRecord, NodeRecord, ProcessRecord
from service.db.repositories import step_series
from service.db.session import Session
from service.db.tables import (
    AgentRow,
    AllocationRow,
    HeldGpuRow,
    JobRow,
    LogRow,
    NodeRow,
    ProcessRow,
    StepRow,
)
from service.db.upsert import insert_of

_processes = Reader(ProcessRecord, ProcessRow)
_agents = Reader(AgentRecord, AgentRow)
_nodes = Reader(NodeRecord, NodeRow)

# Most heartbeats bring no news and are these four statements: built once, they are read by parameters alone.
_NODES = _nodes.select(NodeRow.agent_id == bindparam("agent")).order_by(NodeRow.node_id)
# Whoever lives on a node holds GPUs of it: found by these, it does not matter how much has ever run there. (The cast
# changes nothing, but SQLite would look along the index of nodes, through all that has.)
_ON_NODES = (
    sql_cast(ProcessRow.node_id, String).in_(bindparam("nodes", expanding=True)),
    ProcessRow.allocation_id.in_(
        select(HeldGpuRow.allocation_id).where(HeldGpuRow.node_id.in_(bindparam("nodes", expanding=True)))
    ),
)
_LIVE_PROCESSES = _processes.select(*_ON_NODES).order_by(ProcessRow.key)
_HEARD = (
    update(cast("Table", AgentRow.__table__))
    .where(AgentRow.agent_id == bindparam("agent"))
    .values(
        boot_id=bindparam("boot"),
        reports_stored=bindparam("stored"),
        clock_offset_s=bindparam("offset_s"),
        heartbeat_at_s=bindparam("at_s"),
        measures_links=bindparam("measures"),
    )
)
# The same for many agents at once.
_AGENTS = _agents.select(AgentRow.agent_id.in_(bindparam("agents", expanding=True)))
_NODE_STATES = select(NodeRow.node_id, NodeRow.agent_id, NodeRow.state).where(
    NodeRow.agent_id.in_(bindparam("agents", expanding=True))
)
_LIVE_STATES = (
    select(
        ProcessRow.key,
        ProcessRow.node_id,
        ProcessRow.desired,
        ProcessRow.state,
        ProcessRow.project,
        ProcessRow.job_id,
        ProcessRow.stage,
        AllocationRow.generation,
    )
    .join(AllocationRow, AllocationRow.allocation_id == ProcessRow.allocation_id)
    .where(*_ON_NODES)
    .order_by(ProcessRow.key)
)
_LAUNCHES = select(ProcessRow.key, ProcessRow.launch).where(
    ProcessRow.key.in_(bindparam("keys", expanding=True))
)
_WITH_KEYS = _processes.select(ProcessRow.key.in_(bindparam("keys", expanding=True)))
_COUNT_HEARD = select(func.count()).select_from(AgentRow).where(AgentRow.heartbeat_at_s > bindparam("at_s"))
_HEARD_ALL = (
    update(cast("Table", AgentRow.__table__))
    .where(AgentRow.agent_id == bindparam("agent"))
    .values(
        boot_id=bindparam("boot"),
        reports_stored=bindparam("stored"),
        clock_offset_s=bindparam("offset_s"),
        heartbeat_at_s=bindparam("at_s"),
    )
)
_PROGRESS = select(
    JobRow.job_id, JobRow.state, JobRow.generation, JobRow.declared_steps, JobRow.reported_steps
).where(JobRow.job_id.in_(bindparam("jobs", expanding=True)))
_SET_REPORTED = (
    update(cast("Table", JobRow.__table__))
    .where(JobRow.job_id == bindparam("job"))
    .values(reported_steps=bindparam("reached"), version=JobRow.version + 1)
)
_SET_BUSY = (
    update(cast("Table", ProcessRow.__table__))
    .where(ProcessRow.key == bindparam("process"))
    .values(busy_fraction=bindparam("fraction"))
)


def agent(session: Session, agent_id: str) -> AgentRecord | None:
    """The agent, if it has joined."""
    return _agents.get(session, agent_id)


def nodes_of_agent(session: Session, agent_id: str) -> list[NodeRecord]:
    """By id."""
    return _nodes.fetch(session, _NODES, {"agent": agent_id})


def live_processes_on(session: Session, node_ids: Collection[str]) -> list[ProcessRecord]:
    """Processes of these nodes whose allocation still holds something, by key."""
    return _processes.fetch(session, _LIVE_PROCESSES, {"nodes": sorted(node_ids)})


def heard(
    session: Session,
    agent_id: str,
    *,
    boot_id: str | None,
    reports_stored: int,
    clock_offset_s: float,
    at_s: float,
    measures_links: bool,
) -> None:
    """The agent is alive, and so many of its reports are stored."""
    session.execute(
        _HEARD,
        {
            "agent": agent_id,
            "boot": boot_id,
            "stored": reports_stored,
            "offset_s": clock_offset_s,
            "at_s": at_s,
            "measures": measures_links,
        },
    )


@dataclass(frozen=True, slots=True)
class LiveProcess:
    """What is compared of a process with every heartbeat, and what is stored with its reports."""

    key: str
    node_id: str
    desired: bool
    state: str
    project: str
    job_id: str
    stage: int
    generation: int
    """Of its job."""


@dataclass(frozen=True, slots=True)
class Heard:
    """An agent whose heartbeat moved nothing."""

    agent_id: str
    boot_id: str | None
    clock_offset_s: float
    reports_stored: int


def agents_with_ids(session: Session, agent_ids: Sequence[str]) -> dict[str, AgentRecord]:
    """Those of these agents that have joined."""
    return {agent.agent_id: agent for agent in _agents.fetch(session, _AGENTS, {"agents": agent_ids})}


def count_heard_since(session: Session, at_s: float) -> int:
    """Agents that were heard after that time."""
    return session.scalar(_COUNT_HEARD, {"at_s": at_s}) or 0


def node_states_of(session: Session, agent_ids: Sequence[str]) -> list[tuple[str, str, str]]:
    """(node, agent, state) of every node of these agents."""
    rows = session.execute(_NODE_STATES, {"agents": agent_ids})
    return [(node_id, agent_id, state) for node_id, agent_id, state in rows]


def live_states_on(session: Session, node_ids: Sequence[str]) -> list[LiveProcess]:
    """The same processes as `live_processes_on`, without what they are started with."""
    found: list[LiveProcess] = []
    for part in parts(list(node_ids)):
        found += [LiveProcess(*row) for row in session.execute(_LIVE_STATES, {"nodes": part})]
    return found


def launches(session: Session, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Key → StageProcess document."""
    return {
        key: launch
        for part in parts(list(keys))
        for key, launch in session.execute(_LAUNCHES, {"keys": part})
    }


def heard_all(session: Session, agents: Sequence[Heard], at_s: float) -> None:
    """These agents are alive, and so many reports of each are stored."""
    if agents:
        session.execute(
            _HEARD_ALL,
            [
                {
                    "agent": each.agent_id,
                    "boot": each.boot_id,
                    "stored": each.reports_stored,
                    "offset_s": each.clock_offset_s,
                    "at_s": at_s,
                }
                for each in agents
            ],
        )


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is."""

    job_id: str
    state: str
    generation: int
    declared_steps: int
    reported_steps: int


def progress_of(session: Session, job_ids: Sequence[str]) -> dict[str, JobProgress]:
    """By id."""
    if not job_ids:
        return {}
    rows = session.execute(_PROGRESS, {"jobs": job_ids})
    return {row.job_id: JobProgress(*row) for row in rows}


def set_reported_steps(session: Session, reached: Mapping[str, int]) -> None:
    """Job → the step that it has reached, as was found in this transaction."""
    if reached:
        rows = [{"job": job_id, "reached": reached[job_id]} for job_id in sorted(reached)]
        session.execute(_SET_REPORTED, rows)


def processes_with_keys(session: Session, keys: Collection[str]) -> dict[str, ProcessRecord]:
    """Those of these keys that there are."""
    found: dict[str, ProcessRecord] = {}
    for part in parts(sorted(keys)):
        for process in _processes.fetch(session, _WITH_KEYS, {"keys": part}):
            found[process.key] = process
    return found


def store_steps(session: Session, rows: Iterable[Mapping[str, object]]) -> None:
    """One row a step of a job: a later generation's takes the place of an earlier one's, never the other way."""
    steps = [_finite(row) for row in rows]
    if steps:
        session.execute(_upsert_step(session.dialect), steps)
        step_series.add(session, steps)


def store_lines(session: Session, rows: Iterable[Mapping[str, object]]) -> None:
    """Lines of logs, each under its process and number once."""
    lines = list(rows)
    if lines:
        session.execute(_insert_line(session.dialect), lines)


def set_busy_fractions(session: Session, busy: Mapping[str, float]) -> None:
    """Key → how busy the process kept its GPU; no change of its state, hence of its version."""
    if busy:
        session.execute(_SET_BUSY, [{"process": key, "fraction": busy[key]} for key in sorted(busy)])


def drop_oldest_lines(session: Session, keep: int) -> int:
    """Keep the newest `keep` lines of each job; how many were dropped."""
    dropped = 0
    crowded = select(LogRow.job_id).group_by(LogRow.job_id).having(func.count() > keep)
    for job_id in list(session.scalars(crowded)):
        newest = select(LogRow.seq).where(LogRow.job_id == job_id).order_by(LogRow.seq.desc())
        border = session.scalar(newest.offset(keep).limit(1))
        gone = session.execute(
            delete(LogRow).where(LogRow.job_id == job_id, LogRow.seq <= border).returning(LogRow.seq)
        )
        dropped += len(gone.all())
    return dropped


@cache
def _upsert_step(dialect: str) -> Any:
    statement = insert_of(dialect, StepRow.__table__)
    new = statement.excluded
    columns = tuple(each.name for each in StepRow.__table__.columns if not each.primary_key)
    return statement.on_conflict_do_update(
        index_elements=["job_id", "step"],
        set_={name: getattr(new, name) for name in columns},
        where=StepRow.generation <= new.generation,
    )


@cache
def _insert_line(dialect: str) -> Any:
    return insert_of(dialect, LogRow.__table__).on_conflict_do_nothing(index_elements=["key", "line"])


def _finite(row: Mapping[str, object]) -> dict[str, object]:
    """A loss or norm that is not a number is stored as none: not every database can hold it."""
    finite = dict(row)
    for name in ("loss", "grad_norm"):
        value = row[name]
        finite[name] = value if isinstance(value, float) and math.isfinite(value) else None
    return finite
