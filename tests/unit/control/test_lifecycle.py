"""Only legal transitions: every pair of states of every table, tried one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert, select

from scheduler.job import JOB_TRANSITIONS, JobState
from scheduler.placement import ALLOCATION_TRANSITIONS, AllocationState
from service.db.engine import Mode, begun, make_engine
from service.db.repositories import allocations, cluster, events, jobs
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.db.tables import (
    AccountRow,
    AgentRow,
    AllocationRow,
    GpuTypeRow,
    JobRow,
    NodeRow,
    ProcessRow,
    ProjectRow,
    RegionRow,
    TokenRow,
)
from service.db.transaction import transact
from service.lifecycle import (
    ENDED_PROCESS_STATES,
    NODE_TRANSITIONS,
    PROCESS_TRANSITIONS,
    IllegalMoveError,
    Moment,
    MovedMeanwhileError,
    NodeState,
    move_allocation,
    move_job,
    move_node,
    move_process,
)
from tests.control_world import make_tables

MOMENT = Moment(10.0, "test")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = make_engine("sqlite://")
    make_tables(engine)
    transact(engine, Mode.WRITE, _one_of_each)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """What a test writes is taken back after it."""
    with begun(engine, Mode.WRITE) as connection:
        yield Session(connection)


def _one_of_each(session: Session) -> None:
    session.execute(insert(ProjectRow).values(project="p", created_at_s=0.0))
    session.execute(
        insert(AccountRow).values(
            account_id="a", project="*", name="a", kind="service", created_at_s=0.0, disabled_at_s=None
        )
    )
    session.execute(
        insert(TokenRow).values(
            token_id="t",
            account_id="a",
            project="p",
            name="t",
            role="agent",
            prefix="x",
            sha256="0",
            created_at_s=0.0,
        )
    )
    session.execute(insert(RegionRow).values(region="r", pue=1.0))
    session.execute(
        insert(GpuTypeRow).values(
            gpu_type="g", memory_bytes=1.0, power_w=1.0, idle_w=1.0, intra_region_bps=1.0
        )
    )
    session.execute(
        insert(AgentRow).values(
            agent_id="a", token_id="t", agent_version="1", joined_at_s=0.0, heartbeat_at_s=0.0
        )
    )
    session.execute(
        insert(NodeRow).values(
            node_id="n",
            agent_id="a",
            region="r",
            gpu_type="g",
            gpus=1,
            address="h",
            port_first=2000,
            port_last=2001,
            sustained_flops=1.0,
            measured_at_s=0.0,
        )
    )
    session.execute(
        insert(JobRow).values(
            job_id="j",
            project="p",
            name="j",
            submitted_by="t",
            spec={},
            state="queued",
            priority=50,
            submitted_at_s=0.0,
            declared_steps=1,
        )
    )
    session.execute(
        insert(AllocationRow).values(
            allocation_id="al",
            project="p",
            job_id="j",
            generation=1,
            state="starting",
            placement={},
            predicted_iteration_s=1.0,
            first_step=1,
            master_address="h",
            master_port=2000,
            epoch=1,
            created_at_s=0.0,
        )
    )
    session.execute(
        insert(ProcessRow).values(
            key="al/0",
            project="p",
            allocation_id="al",
            job_id="j",
            node_id="n",
            rank=0,
            stage=0,
            region="r",
            launch={},
        )
    )


@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
def test_a_job_makes_the_moves_of_its_table_and_no_other(
    session: Session, source: JobState, target: JobState
) -> None:
    session.execute(JobRow.__table__.update().values(state=source.value))
    job = jobs.get(session, EVERYTHING, "j")
    assert job is not None
    if target in JOB_TRANSITIONS[source]:
        moved = move_job(session, job, target, MOMENT, retries=2)
        assert moved == jobs.get(session, EVERYTHING, "j")
        assert (moved.state, moved.version, moved.retries) == (target, job.version + 1, 2)
        events.write(session)
        (event,) = events.after(session, EVERYTHING, 0, 10)
        assert (event.kind, event.at_s, event.actor) == (f"job.{target}", 10.0, "test")
        assert event.data == {"from": source, "to": target, "version": job.version + 1}
    else:
        with pytest.raises(IllegalMoveError):
            move_job(session, job, target, MOMENT)
        assert jobs.get(session, EVERYTHING, "j") == job
        events.write(session)
        assert events.after(session, EVERYTHING, 0, 10) == []


@pytest.mark.parametrize("source", AllocationState)
@pytest.mark.parametrize("target", AllocationState)
def test_an_allocation_makes_the_moves_of_its_table_and_no_other(
    session: Session, source: AllocationState, target: AllocationState
) -> None:
    session.execute(AllocationRow.__table__.update().values(state=source.value))
    allocation = allocations.get(session, EVERYTHING, "al")
    assert allocation is not None
    if target in ALLOCATION_TRANSITIONS[source]:
        assert move_allocation(session, allocation, target, MOMENT) == allocations.get(
            session, EVERYTHING, "al"
        )
    else:
        with pytest.raises(IllegalMoveError):
            move_allocation(session, allocation, target, MOMENT)


@pytest.mark.parametrize("source", sorted(PROCESS_TRANSITIONS))
@pytest.mark.parametrize("target", sorted(PROCESS_TRANSITIONS))
def test_a_process_makes_the_moves_of_its_table_and_no_other(
    session: Session, source: str, target: str
) -> None:
    session.execute(ProcessRow.__table__.update().values(state=source))
    process = allocations.process(session, "al/0")
    assert process is not None
    if target in PROCESS_TRANSITIONS[source]:
        assert move_process(session, process, target, MOMENT, exit_code=3) == allocations.process(
            session, "al/0"
        )
    else:
        with pytest.raises(IllegalMoveError):
            move_process(session, process, target, MOMENT)


@pytest.mark.parametrize("source", NodeState)
@pytest.mark.parametrize("target", NodeState)
def test_a_node_makes_the_moves_of_its_table_and_no_other(
    session: Session, source: NodeState, target: NodeState
) -> None:
    session.execute(NodeRow.__table__.update().values(state=source.value))
    node = cluster.node(session, "n")
    assert node is not None
    if target in NODE_TRANSITIONS[source]:
        assert move_node(session, node, target, MOMENT) == cluster.node(session, "n")
    else:
        with pytest.raises(IllegalMoveError):
            move_node(session, node, target, MOMENT)


def test_a_move_from_where_the_row_no_longer_is_changes_nothing(session: Session) -> None:
    seen = jobs.get(session, EVERYTHING, "j")
    assert seen is not None
    move_job(session, seen, JobState.CANCELLED, MOMENT)
    with pytest.raises(MovedMeanwhileError):
        move_job(session, seen, JobState.STARTING, MOMENT)
    assert session.scalar(select(JobRow.state)) == "cancelled"


def test_what_has_ended_has_no_way_out() -> None:
    assert all(not PROCESS_TRANSITIONS[state] for state in ENDED_PROCESS_STATES)
    reachable = {target for targets in PROCESS_TRANSITIONS.values() for target in targets}
    assert reachable == set(PROCESS_TRANSITIONS) - {"pending"}
