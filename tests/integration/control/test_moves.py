"""Plans that change running jobs: what is stopped leaves a checkpoint, what is promised begins, and nothing between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, select

from scheduler.network import Residual
from scheduler.plan import Plan, Preempt
from service.control import applier, scheduling
from service.control.applier import Grounds, PackedPlan
from service.control.errors import StalePlanError
from service.control.scheduling import Outcome
from service.db.repositories import allocations
from service.db.session import Session
from service.db.tables import Base
from service.lifecycle import Moment
from service.promises import stand
from tests.control_script import WIDE, Scripted, move_to, reports, runs, start_at, trains_to
from tests.control_world import World

REGIONS = ("eu-north", "eu-west")
PREEMPTION_WHY = "a shorter job needs its place"


class FaultError(Exception):
    """Planted by a test."""


async def test_a_move_stops_the_job_and_starts_it_where_it_was_promised_to(
    played_on_both: World, script: Scripted
) -> None:
    world = played_on_both
    agents = await world.cluster_of(*REGIONS, slots=3)
    job_id = await runs(world, script, agents, {"eu-north": 2})
    await trains_to(world, agents, job_id, 1, 7)
    script.once(move_to(job_id, {"eu-north": 2, "eu-west": 1}, why="a third stage is faster"))
    assert await world.plan() is Outcome.APPLIED
    job = await world.job(job_id)
    assert (job.state, job.stop_cause) == ("stopping", "moved")
    promise = (await world.promises())[job_id]
    assert (promise.kind, promise.generation, promise.why) == ("move", 2, "a third stage is faster")
    assert (promise.epoch, promise.snapshot_version) == (world.leadership.epoch, script.asked[-1].version)
    assert (await world.held())[0] == 2, "what it holds is held until it is gone"
    assert await world.plan() is Outcome.EMPTY, "its place is promised, but not free yet"
    snapshot = await world.snapshot()
    [running] = snapshot.running
    assert (running.stopping, len(snapshot.promised), snapshot.waiting) == (True, 1, ())
    assert Residual.of(snapshot).free_gpus(("eu-west", "cpu-slot")) == 2
    assert Residual.after_stops(snapshot).free_gpus(("eu-north", "cpu-slot")) == 1

    await world.until_stopped(agents)
    job = await world.job(job_id)
    assert (job.state, job.retries, job.reported_steps, job.not_before_s) == ("queued", 0, 7, 0.0)
    assert job.reasons[0]["code"] == "PlacePromised"
    assert (await world.held())[0] == 0
    assert (await world.snapshot()).waiting == (), "it waits for nothing that a policy could give"

    await world.plan()
    job = await world.job(job_id)
    assert (job.state, job.generation, job.stop_cause, job.reasons) == ("starting", 2, None, [])
    assert await world.promises() == {}
    first, second = await world.allocations(job_id)
    assert (first.stop_cause, first.stop_why) == (
        "moved",
        "moved to eu-north:2>eu-west:1: a third stage is faster",
    )
    assert (second.first_step, second.why, second.stop_cause) == (8, "a third stage is faster", None)
    await world.until_running(agents)
    launches = [agent.known[key] for agent in agents for key in agent.alive()]
    assert {launch.env["BACE_RESUME_STEP"] for launch in launches} == {"7"}
    assert {launch.env["BACE_STAGES"] for launch in launches} == {"3"}
    kinds = [kind for kind, _ in await world.told(job_id)]
    assert kinds == [
        *("job.queued", "job.starting", "job.running", "job.checkpoint"),
        *("job.stopping", "job.promised", "job.queued", "job.starting", "job.running"),
    ]
    value = world.services.metrics.registry.get_sample_value
    assert value("bace_moves_total", {"kind": "migrate"}) == 1
    assert value("bace_placements_total") == 2


async def test_a_preempted_job_waits_at_once_and_its_place_is_the_others(
    played_on_both: World, script: Scripted
) -> None:
    world = played_on_both
    agents = await world.cluster_of("eu-north", slots=3)
    long = await runs(world, script, agents, {"eu-north": 2})
    await trains_to(world, agents, long, 1, 5)
    short = await world.submit(**WIDE)

    script.once(Preempt(long, PREEMPTION_WHY), start_at(short, {"eu-north": 3}))
    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(long)).stop_cause == "preempted"
    promised = await world.job(short)
    assert (promised.state, promised.reasons[0]["code"]) == ("queued", "PlacePromised")
    assert [promise.kind for promise in (await world.promises()).values()] == ["start"]

    await world.until_stopped(agents)
    waits = await world.job(long)
    assert (waits.state, waits.retries, waits.not_before_s) == ("queued", 0, 0.0)
    assert (waits.reasons[0]["code"], waits.reasons[0]["detail"]) == (
        "Preempted",
        f"preempted: {PREEMPTION_WHY}",
    )
    [waiting] = (await world.snapshot()).waiting
    assert (waiting.spec.job_id, waiting.remaining_steps, waiting.generation) == (long, 95, 2)
    assert waiting.waits_since_s == (await world.allocations(long))[0].ended_at_s

    assert await world.plan() is Outcome.APPLIED
    assert (await world.job(short)).state == "starting"
    assert (await world.job(long)).reasons[0]["code"] == "BehindInQueue", "what the next round says of it"
    assert world.services.metrics.registry.get_sample_value("bace_preemptions_total") == 1


async def test_two_jobs_change_places(played: World, script: Scripted) -> None:
    agents = await played.cluster_of(*REGIONS, slots=1)
    one = await runs(played, script, agents, {"eu-north": 1})
    other = await runs(played, script, agents, {"eu-west": 1})
    script.once(move_to(one, {"eu-west": 1}), move_to(other, {"eu-north": 1}))
    assert await played.plan() is Outcome.APPLIED
    north, west = agents
    await played.until_stopped([north])
    assert await played.plan() is Outcome.EMPTY, "the first has left; where it goes the other still is"
    await played.until_stopped([west])
    await played.plan()
    await played.until_running(agents)
    found = {
        job_id: [segment["region"] for segment in (await played.allocation(job_id)).placement["segments"]]
        for job_id in (one, other)
    }
    assert found == {one: ["eu-west"], other: ["eu-north"]}


async def test_of_two_plans_the_earlier_has_the_first_right(played: World, script: Scripted) -> None:
    """A slot that is free now is not given away while somebody to whom it was promised waits for another."""
    agents = await played.cluster_of(*REGIONS, slots=2)
    runner = await runs(played, script, agents, {"eu-north": 2})
    first, second = await played.submit(**WIDE), await played.submit(**WIDE)
    script.once(Preempt(runner, PREEMPTION_WHY), start_at(first, {"eu-north": 2, "eu-west": 1}))
    await played.plan()
    script.once(start_at(second, {"eu-west": 2}))
    assert await played.plan() is Outcome.INVALID, "one of the two is promised"
    script.once(start_at(second, {"eu-west": 1}))
    assert await played.plan() is Outcome.APPLIED
    assert (await played.job(second)).state == "starting", "the one that is left is free now"
    await played.until_stopped(agents)
    await played.plan()
    assert (await played.job(first)).state == "starting"


async def test_what_stopping_jobs_leave_can_be_promised_by_a_later_plan(
    played: World, script: Scripted
) -> None:
    agents = await played.cluster_of("eu-north", slots=4)
    runner = await runs(played, script, agents, {"eu-north": 4})
    first, second = await played.submit(**WIDE), await played.submit(**WIDE)
    script.once(Preempt(runner, PREEMPTION_WHY), start_at(first, {"eu-north": 3}))
    await played.plan()
    script.once(start_at(second, {"eu-north": 1}))
    await played.plan()
    assert set(await played.promises()) == {first, second}
    await played.until_stopped(agents)
    await played.plan()
    assert [(await played.job(job_id)).state for job_id in (first, second)] == ["starting"] * 2


async def test_a_job_that_may_not_be_stopped_never_is(played: World, script: Scripted) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    job_id = await runs(played, script, agents, {"eu-north": 2}, elasticity="none")
    before = await played.run(_all_rows)
    for decision in (Preempt(job_id, PREEMPTION_WHY), move_to(job_id, {"eu-west": 2})):
        script.once(decision)
        await played.submit(name="somebody-new")
        assert await played.plan() is Outcome.INVALID
    after = await played.run(_all_rows)
    assert after["allocations"] == before["allocations"]
    packed = await _packed(played, Plan(0, (Preempt(job_id, PREEMPTION_WHY),)))
    with pytest.raises(StalePlanError, match="elasticity"):
        await played.leadership.write(_apply(played, packed))


async def test_a_plan_that_finds_a_job_gone_is_stale_and_stops_nobody(
    played: World, script: Scripted
) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    one = await runs(played, script, agents, {"eu-north": 1})
    other = await runs(played, script, agents, {"eu-west": 1})
    packed = await _packed(played, Plan(0, (Preempt(one, "now"), Preempt(other, "now"))))
    reports(agents, other)[0].exit(1)
    await agents[1].beat()
    assert (await played.job(other)).state != "running"
    before = await played.run(_all_rows)
    with pytest.raises(StalePlanError):
        await played.leadership.write(_apply(played, packed))
    assert await played.run(_all_rows) == before


async def test_a_fault_at_any_statement_of_a_plan_that_moves_leaves_nothing_behind(
    played: World, script: Scripted
) -> None:
    world = played
    agents = await world.cluster_of(*REGIONS, slots=3)
    moved = await runs(world, script, agents, {"eu-north": 2})
    paused = await runs(world, script, agents, {"eu-west": 1})
    waits = [await world.submit(**WIDE) for _ in range(2)]
    script.once(
        move_to(moved, {"eu-west": 2}),
        Preempt(paused, PREEMPTION_WHY),
        start_at(waits[0], {"eu-north": 1}),
        start_at(waits[1], {"eu-north": 2}),
    )
    snapshot = await world.snapshot()
    plan = script.decide(snapshot, strict=False, seed=0)
    packed = world.scheduler._pack(snapshot, plan, frozenset())
    assert [start.start.job_id for start in packed.starts] == [waits[0]]
    assert [decision.job_id for decision in packed.promised] == [waits[1], moved]
    await _fails_everywhere(world, _apply(world, packed))
    assert set(await world.promises()) == {moved, waits[1]}

    await world.until_stopped(agents)
    view = await world.scheduler._view()
    pending = {row.job_id: row for row, _ in view.promised}
    standing = stand(
        view.snapshot,
        [_pending(view, job_id) for job_id in pending],
        world.services.settings.promise_max_age_s,
    )
    assert standing.beginning == (waits[1], moved)
    begins = world.scheduler._pack_promises(view.snapshot, standing, pending)
    await _fails_everywhere(world, lambda session: applier.begin_promised(session, begins, _grounds(world)))
    assert await world.promises() == {}


async def test_the_state_that_travels_holds_its_link_until_the_gang_is_up(
    played: World, script: Scripted
) -> None:
    agents = await played.cluster_of(*REGIONS, slots=2)
    job_id = await runs(played, script, agents, {"eu-north": 1})
    script.once(move_to(job_id, {"eu-west": 1}))
    await played.plan()
    [promise] = (await played.promises()).values()
    [transfer] = promise.transfers
    direction, bps = (transfer["src"], transfer["dst"]), transfer["bandwidth_bps"]
    await played.until_stopped(agents)
    await played.plan()
    assert await played.run(allocations.reserved_bps) == {direction: bps}
    [running] = (await played.snapshot()).running
    assert [(each.src, each.dst) for each in running.transfers] == [direction]
    assert running.ready_s is not None
    assert running.ready_s > played.clock.now(), "no progress before all of it is up"
    await played.until_running(agents)
    assert await played.run(allocations.reserved_bps) == {}
    [running] = (await played.snapshot()).running
    assert running.transfers == ()
    assert running.ready_s == (await played.allocation(job_id)).running_at_s


def _pending(view: Any, job_id: str) -> Any:
    promised = {each.spec.job_id: each for each in view.snapshot.promised}
    (found,) = [(row, job) for row, job in view.promised if row.job_id == job_id]
    return scheduling._pending(*found, promised[job_id])


async def _packed(world: World, plan: Plan) -> PackedPlan:
    snapshot = await world.snapshot()
    return world.scheduler._pack(snapshot, Plan(snapshot.version, plan.decisions), frozenset())


def _grounds(world: World) -> Grounds:
    return Grounds(world.leadership.epoch, Moment(world.clock.now(), "test"), "file:///srv/checkpoints")


def _apply(world: World, packed: PackedPlan) -> Callable[[Session], int]:
    return lambda session: applier.apply_plan(session, packed, _grounds(world))


async def _fails_everywhere(world: World, work: Callable[[Session], int]) -> None:
    """Every statement of the transaction is made to fail once, and leaves nothing; then it is let through."""
    before = await world.run(_all_rows)
    statements, raise_at = 0, None

    def count(*_args: object) -> None:
        nonlocal statements
        statements += 1
        if statements == raise_at:
            raise FaultError(f"at statement {statements}")

    event.listen(world.engine, "before_cursor_execute", count)
    try:
        at = 0
        while True:
            at, statements, raise_at = at + 1, 0, at + 1
            try:
                await world.leadership.write(work)
            except FaultError:
                raise_at = None
                assert await world.run(_all_rows) == before, f"statement {at} left something behind"
            else:
                break
    finally:
        event.remove(world.engine, "before_cursor_execute", count)
    assert at > 20


def _all_rows(session: Session) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that is stored, table by table."""
    return {
        table.name: sorted((tuple(row) for row in session.execute(select(table))), key=repr)
        for table in Base.metadata.sorted_tables
    }
