"""A job walks through its whole life, driven by heartbeats alone."""

from __future__ import annotations

import pytest

from scheduler.job import JobState
from service.control.scheduling import Outcome
from service.db.repositories import reports
from service.db.scope import EVERYTHING
from service.db.session import Session
from tests.control_world import FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")


async def _running(world: World, **changes: object) -> tuple[str, list[FakeAgent]]:
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit(**changes)
    assert await world.plan() is Outcome.APPLIED
    await world.beats(agents)
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    assert (await world.job(job_id)).state == JobState.RUNNING
    return job_id, agents


def _last_stage(agents: list[FakeAgent]) -> FakeAgent:
    return next(agent for agent in agents if any(p.stage == 2 for p in agent.known.values()))


async def test_a_job_that_fits_in_no_region_runs_over_all_and_succeeds(stored_world: World) -> None:
    world = stored_world
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    assert await world.plan() is Outcome.APPLIED
    job = await world.job(job_id)
    assert (job.state, job.generation, job.reasons) == ("starting", 1, [])
    assert await world.held() == (3, 4, 1), "three GPUs, two cuts both ways, one port"

    await world.beats(agents)
    assert [len(agent.started) for agent in agents] == [1, 1, 1]
    agents[0].ready()
    await world.beats(agents)
    assert (await world.job(job_id)).state == "starting", "a gang runs when all of it is ready"
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    assert (await world.job(job_id)).state == "running"

    last = _last_stage(agents)
    last.step(1, 2, 3, 4)
    for agent in agents:
        agent.exit(0)
    await world.beats(agents)
    job = await world.job(job_id)
    assert (job.state, job.reported_steps) == ("succeeded", 4)
    assert job.finished_at_s == pytest.approx(world.clock.now(), abs=1)
    assert await world.held() == (0, 0, 0)
    await world.beats(agents)
    assert all(not agent.running for agent in agents), "ends that are stored are forgotten"


async def test_an_end_before_the_last_report_waits_for_it(world: World) -> None:
    job_id, agents = await _running(world)
    last = _last_stage(agents)
    key = last.alive()[0]
    for agent in agents:
        agent.exit(0)
    await world.beats(agents)
    assert (await world.job(job_id)).state == "running"
    last.step(1, 2, 3, 4, key=key)
    await last.beat()
    assert (await world.job(job_id)).state == "succeeded"


async def test_gangs_that_end_before_the_last_step_are_tried_again_then_failed(world: World) -> None:
    job_id, agents = await _running(world)
    for agent in agents:
        agent.exit(0)
    await world.beats(agents)
    world.clock.advance(60)
    assert await world.reconcile() == 1
    job = await world.job(job_id)
    assert (job.state, job.stop_cause, job.retries) == ("queued", "ended-early", 1)
    assert await world.held() == (0, 0, 0)


async def test_a_failure_stops_the_gang_and_the_job_resumes_from_its_checkpoint(stored_world: World) -> None:
    world = stored_world
    job_id, agents = await _running(world)
    last = _last_stage(agents)
    last.step(1, 2, 3)
    last.checkpoint(2)
    await world.beats(agents)
    victim = agents[0]
    victim.exit(-9)
    await victim.beat()
    job = await world.job(job_id)
    assert (job.state, job.stop_cause) == ("stopping", "stage-died")
    assert (await world.held())[0] == 3, "held until all of it has ended"

    others = [agent for agent in agents if agent is not victim]
    await world.beats(others)  # told to stop
    await world.beats(others)  # have stopped
    job = await world.job(job_id)
    assert (job.state, job.retries, job.checkpoint_step, job.reported_steps) == ("queued", 1, 2, 2)
    assert await world.held() == (0, 0, 0)
    assert job.reasons[0]["code"] == "RetryBackoff"
    assert "SIGKILL" in job.reasons[0]["detail"]

    assert await world.plan() is Outcome.EMPTY, "it waits out its back-off"
    world.clock.advance(8.1)
    await world.beats(agents)
    assert await world.plan() is Outcome.APPLIED
    await world.beats(agents)
    launch = next(iter(agents[0].known[key] for key in agents[0].alive()))
    assert launch.env["BACE_RESUME_STEP"] == "2"
    assert launch.env["BACE_GENERATION"] == "2"
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    last = next(agent for agent in agents if agent.known[agent.alive()[0]].stage == 2)
    last.step(3, 4)
    for agent in agents:
        agent.exit(0)
    await world.beats(agents)
    assert (await world.job(job_id)).state == "succeeded"
    steps = await world.run(lambda session: _steps(session, job_id))
    assert steps == [(1, 1), (2, 1), (3, 2), (4, 2)], (
        "each step once, those run again by the later generation"
    )


async def test_retries_are_bounded_and_the_last_lines_are_told(world: World) -> None:
    job_id, agents = await _running(world)
    for attempt in range(4):
        agents[1].exit(1, lines=["Traceback", f"ValueError: attempt {attempt}"])
        for _ in range(3):
            await world.beats(agents)
        world.clock.advance(100)
        await world.beats(agents)
        await world.plan()
        await world.beats(agents)
        for agent in agents:
            agent.ready()
        await world.beats(agents)
    job = await world.job(job_id)
    assert (job.state, job.generation) == ("failed", 4)
    assert job.reasons[0]["code"] == "StageFailed"
    assert job.reasons[0]["last_lines"] == ["Traceback", "ValueError: attempt 3"]
    assert job.reasons[0]["region"] == agents[1].region
    assert await world.held() == (0, 0, 0)
    assert all(not agent.alive() for agent in agents)


async def test_back_off_doubles_and_progress_forgives(world: World) -> None:
    job_id, agents = await _running(world)
    waits = []
    for attempt in range(3):
        if attempt == 2:
            _generation_last(agents).checkpoint(3)
        agents[0].exit(-11)
        for _ in range(3):
            await world.beats(agents)
        job = await world.job(job_id)
        waits.append(round(job.not_before_s - world.clock.now()))
        world.clock.advance(40)
        await world.beats(agents)
        await world.plan()
        await world.beats(agents)
        for agent in agents:
            agent.ready()
        await world.beats(agents)
    assert waits == [8, 16, 8], "doubled, and begun anew after a checkpoint of its own"


async def test_out_of_memory_is_not_tried_again(world: World) -> None:
    job_id, agents = await _running(world)
    agents[2].exit(13, cause="out-of-memory", lines=["RuntimeError: not enough memory"])
    for _ in range(3):
        await world.beats(agents)
    job = await world.job(job_id)
    assert (job.state, job.reasons[0]["code"]) == ("failed", "OutOfMemory")
    assert job.reasons[0]["last_lines"] == ["RuntimeError: not enough memory"]


async def test_the_root_is_blamed_not_what_followed(world: World) -> None:
    job_id, agents = await _running(world)
    agents[0].exit(12, cause="peer-lost")
    await agents[0].beat()
    agents[1].exit(-9)
    for _ in range(3):
        await world.beats(agents)
    job = await world.job(job_id)
    assert job.stop_cause == "stage-died"


async def test_a_taken_port_is_not_tried_twice(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    ports = []
    for _ in range(3):
        assert await world.plan() is Outcome.APPLIED
        ports.append((await world.allocation(job_id)).master_port)
        await world.beats(agents)
        for agent in agents:
            agent.exit(10, cause="port-taken")
        await world.beats(agents)
        world.clock.advance(100)
        await world.beats(agents)
    assert len(set(ports)) == 3
    assert (await world.job(job_id)).stop_cause == "port-taken"


async def test_a_command_that_cannot_be_executed_is_tried_once_more_and_told(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    detail = "[Errno 2] No such file or directory: nosuchprogram"
    for expected in ("queued", "failed"):
        assert await world.plan() is Outcome.APPLIED
        await world.beats(agents)
        for agent in agents:
            agent.cannot_start(detail)
        await world.beats(agents)
        assert (await world.job(job_id)).state == expected
        world.clock.advance(100)
        await world.beats(agents)
    [reason] = (await world.job(job_id)).reasons
    assert reason["code"] == "FailedToStart"
    assert detail in reason["detail"]


@pytest.mark.parametrize(
    ("cause", "exit_code", "code"), [("drifted", 19, "Drifted"), ("diverged", 20, "Diverged")]
)
async def test_what_most_likely_happens_again_is_tried_once_more(
    world: World, cause: str, exit_code: int, code: str
) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    for expected in ("queued", "failed"):
        assert await world.plan() is Outcome.APPLIED
        await world.beats(agents)
        for agent in agents:
            agent.exit(exit_code, cause=cause)
        await world.beats(agents)
        job = await world.job(job_id)
        assert (job.state, job.stop_cause) == (expected, cause)
        world.clock.advance(100)
        await world.beats(agents)
    assert (await world.job(job_id)).reasons[0]["code"] == code


async def test_a_gang_that_never_gets_ready_is_tried_again(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    await world.plan()
    await world.beats(agents)
    world.clock.advance(world.services.settings.start_timeout_s - 1)
    assert await world.reconcile() == 0
    world.clock.advance(2)
    assert await world.reconcile() == 1
    assert (await world.job(job_id)).stop_cause == "start-timeout"
    await world.beats(agents)
    await world.beats(agents)
    assert (await world.job(job_id)).state == "queued"


def _generation_last(agents: list[FakeAgent]) -> FakeAgent:
    return next(agent for agent in agents if agent.known[agent.alive()[0]].stage == 2)


def _steps(session: Session, job_id: str) -> list[tuple[int, int]]:
    return [(step.step, step.generation) for step in reports.steps(session, EVERYTHING, job_id, 0, 100)]
