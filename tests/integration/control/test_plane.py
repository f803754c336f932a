"""The loops together: woken by what changes, ended by a new epoch, and going on after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy.exc import OperationalError

from service.control import ControlPlane, leader
from service.control.observe import Observer
from tests.control_world import World

REGIONS = ("eu-north", "eu-west", "us-east")
TURNS = 200


async def _until(condition: Callable[[], bool], world: World, seconds: float = 0.0) -> None:
    """Let the loops run until something holds, moving the clock by `seconds` a turn."""
    for _ in range(TURNS):
        if condition():
            return
        world.clock.advance(seconds)
        for _ in range(5):
            await asyncio.sleep(0)
    pytest.fail("it never came to hold")


async def _run(world: World) -> asyncio.Task[None]:
    world.clock.advance(world.services.settings.leader_lease_s + 1)  # the world's own lease ends
    return asyncio.create_task(ControlPlane(world.services).run())


def _value(world: World, name: str, **labels: str) -> float | None:
    return world.services.metrics.registry.get_sample_value(name, labels)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_submission_wakes_planning_without_waiting_for_the_clock(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    task = await _run(world)
    await _until(lambda: _value(world, "bace_leader") == 1, world)
    await _until(lambda: (_value(world, "bace_plans_total", outcome="empty") or 0) > 0, world)
    job_id = await world.submit()
    await _until(lambda: (_value(world, "bace_placements_total") or 0) == 1, world)
    assert (await world.job(job_id)).state == "starting"
    await world.beats(agents)
    assert [len(agent.started) for agent in agents] == [1, 1, 1]
    await _end(task)


async def test_every_loop_comes_through_and_leaving_gives_leadership_away(world: World) -> None:
    task = await _run(world)
    await _until(
        lambda: all(
            _value(world, "bace_loop_last_success_timestamp_seconds", loop=loop)
            for loop in ("renew", "liveness", "reconcile", "bill", "observe", "prune", "plan")
        ),
        world,
        seconds=0.5,
    )
    await _end(task)
    assert _value(world, "bace_leader") == 0
    assert await leader.take(world.services, "next") is not None, "no lease to wait for"


async def test_a_new_epoch_ends_the_loops_and_they_begin_again_when_they_may(world: World) -> None:
    task = await _run(world)
    await _until(lambda: _value(world, "bace_leader") == 1, world)
    epoch = _value(world, "bace_leader_epoch")
    world.clock._now_s += 1000  # paused: nobody wakes meanwhile
    assert await leader.take(world.services, "another") is not None
    await _until(lambda: _value(world, "bace_leader") == 0, world, seconds=1)
    await _until(lambda: _value(world, "bace_leader") == 1, world, seconds=5)
    assert _value(world, "bace_leader_epoch") == (epoch or 0) + 2
    assert not task.done()
    await _end(task)


async def test_a_round_that_fails_is_told_and_the_next_one_runs(world: World) -> None:
    task = await _run(world)
    await _until(lambda: _value(world, "bace_leader") == 1, world)
    read = world.services.db.read

    async def broken(work):  # type: ignore[no-untyped-def]
        raise OperationalError("SELECT", {}, Exception("disk on fire"))

    world.services.db.read = broken  # type: ignore[method-assign]
    await _until(
        lambda: (_value(world, "bace_loop_failures_total", loop="observe") or 0) >= 2, world, seconds=1
    )
    world.services.db.read = read  # type: ignore[method-assign]
    before_s = world.clock.now()
    await _until(
        lambda: (_value(world, "bace_loop_last_success_timestamp_seconds", loop="observe") or 0) > before_s,
        world,
        seconds=1,
    )
    assert not task.done()
    await _end(task)


async def test_the_observer_tells_what_the_rows_say(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    await world.price("electricity", "eu-north", [(-60, 0.12)])
    observer = Observer(world.services)
    await observer.observe()
    job_id = await world.submit()
    blocked = await world.submit()
    await world.plan()
    await world.beats(agents)
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    agents[0].step(1, 2, 3, drift=2, drift_bound=3, rolled_back=1)
    agents[0].step(4, drift=1, drift_bound=3, rolled_back=5)
    await world.beats(agents)
    world.clock.advance(30)
    await observer.observe()
    late = ("drift", "drift_bound", "rolled_back")
    assert [_value(world, f"bace_training_{name}_updates", queue="nlp") for name in late] == [2, 3, 5]
    assert _value(world, "bace_queue_jobs", queue="nlp", state="running") == 1
    assert _value(world, "bace_queue_jobs", queue="nlp", state="queued") == 1
    assert (_value(world, "bace_queue_oldest_job_age_seconds", queue="nlp") or 0) >= 30
    reason = (await world.job(blocked)).reasons[0]["code"]
    assert _value(world, "bace_unplaced_jobs", reason=reason) == 1
    assert _value(world, "bace_nodes", region="eu-west", state="ready") == 1
    assert _value(world, "bace_gpus", region="eu-west", model="cpu-slot", state="used") == 1
    assert _value(world, "bace_gpus", region="eu-west", model="cpu-slot", state="free") == 0
    assert _value(world, "bace_electricity_price_dollars_per_kilowatt_hour", region="eu-north") == 0.12
    cut = (await world.allocation(job_id)).placement["cuts"][0]
    for src, dst in ((cut["src"], cut["dst"]), (cut["dst"], cut["src"])):
        assert _value(world, "bace_link_capacity_bytes_per_second", src=src, dst=dst) == 10e9 / 8
        reserved = _value(world, "bace_link_reserved_bytes_per_second", src=src, dst=dst)
        assert reserved == pytest.approx(cut["bandwidth_bps"] / 8)
    assert _value(world, "bace_job_queueing_delay_seconds_count") == 1
    for agent in agents:
        agent.exit(0)
    await world.beats(agents)
    await observer.observe()
    assert _value(world, "bace_training_drift_updates", queue="nlp") is None, "it trains no more"
    assert _value(world, "bace_job_completion_seconds_count") == 1
    assert _value(world, "bace_jobs_finished_total", state="succeeded") == 1
    assert (_value(world, "bace_cost_dollars", region="eu-north", queue="nlp", kind="electricity") or 0) > 0
    assert (_value(world, "bace_energy_joules_total", region="eu-north") or 0) > 0
    assert (_value(world, "bace_unpriced_bills_total", region="eu-west", kind="electricity") or 0) >= 1
    world.services.metrics.clear_cluster()
    assert _value(world, "bace_nodes", region="eu-west", state="ready") is None
