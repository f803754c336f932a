"""The ledger: what is billed is what was drawn, held and sent, at prices that somebody told."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import pytest

from scheduler.profile import boundary_bytes
from service.control.billing import bill
from service.db.reader import Reader
from service.db.records import LedgerRecord
from service.db.repositories import cluster, jobs, ledger
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.db.tables import LedgerRow
from service.snapshots import spec_of
from tests.control_world import START_S, FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")
_rows = Reader(LedgerRecord, LedgerRow)


async def _ledger(world: World, kind: str, region: str | None = None) -> list[LedgerRecord]:
    rows = await world.run(lambda session: _rows.all(session, order_by=[LedgerRow.seq]))
    return [row for row in rows if row.kind == kind and region in (None, row.region)]


async def _running(world: World) -> tuple[str, list[FakeAgent]]:
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit(training={"steps": 100})
    await world.plan()
    await world.beats(agents)
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    return job_id, agents


async def test_electricity_is_the_measured_draw_times_pue_at_the_price_of_the_time(world: World) -> None:
    await FakeAgent(world, "eu-north").join()  # the region must be there to be priced
    await world.price("electricity", "eu-north", [(-3600, 0.10), (600, 0.50), (1200, -0.20)])

    def windy(session: Session) -> None:
        record = cluster.region(session, "eu-north")
        assert record is not None
        cluster.change_region(session, record, pue=1.5)

    await world.run(windy)
    _, agents = await _running(world)
    for agent in agents:
        agent.busy(0.6)
    await world.beats(agents)
    await bill(world.services, world.leadership)
    already = len(await _ledger(world, "electricity", "eu-north"))
    begin_s = world.clock.now()
    world.clock.advance(START_S + 1500 - begin_s)
    await bill(world.services, world.leadership)
    rows = (await _ledger(world, "electricity", "eu-north"))[already:]
    kilowatts = (5.0 + (20.0 - 5.0) * 0.6) * 1.5 / 1000
    assert [(row.from_s, row.to_s, row.price) for row in rows] == [
        (begin_s, START_S + 600, 0.10),
        (START_S + 600, START_S + 1200, 0.50),
        (START_S + 1200, START_S + 1500, -0.20),
    ]
    for row in rows:
        hours = (row.to_s - row.from_s) / 3600
        assert row.quantity == pytest.approx(kilowatts * hours, rel=1e-12)
        assert row.amount_usd == pytest.approx(row.quantity * row.price, rel=1e-12)  # type: ignore[operator]
        assert (row.unit, row.price_source) == ("kWh", "test of eu-north")


async def test_a_price_that_nobody_told_is_not_made_up(world: World) -> None:
    await _running(world)
    world.clock.advance(60)
    await bill(world.services, world.leadership)
    rows = await _ledger(world, "electricity")
    assert {row.region for row in rows} == set(REGIONS)
    assert {(row.price, row.amount_usd, row.price_source) for row in rows} == {
        (None, 0.0, "no price is known")
    }
    assert all(row.quantity > 0 for row in rows), "the energy is known all the same"


async def test_a_price_published_later_is_not_used_before(world: World) -> None:
    await FakeAgent(world, "eu-north").join()
    await world.price("electricity", "eu-north", [(900, 0.3)])
    await _running(world)
    world.clock.advance(START_S + 1000 - world.clock.now())
    await bill(world.services, world.leadership)
    rows = await _ledger(world, "electricity", "eu-north")
    assert [row.price for row in rows] == [None, 0.3]


async def test_time_is_billed_once_and_to_the_end(world: World) -> None:
    job_id, agents = await _running(world)
    created_s = (await world.allocation(job_id)).created_at_s
    for _ in range(3):
        world.clock.advance(30)
        await bill(world.services, world.leadership)
        await bill(world.services, world.leadership)
    world.clock.advance(10)
    agents[0].exit(13, cause="out-of-memory")
    for _ in range(3):
        await world.beats(agents)
    job = await world.job(job_id)
    assert job.state == "failed"
    assert job.finished_at_s is not None
    for region in REGIONS:
        rows = await _ledger(world, "electricity", region)
        assert rows[0].from_s == created_s
        assert rows[-1].to_s == job.finished_at_s
        assert all(a.to_s == b.from_s for a, b in pairwise(rows))
    count = len(await _ledger(world, "electricity"))
    world.clock.advance(1000)
    assert await bill(world.services, world.leadership) == 0
    assert len(await _ledger(world, "electricity")) == count


async def _sent_gb(world: World, job_id: str, steps: int) -> float:
    """What so many steps send over a cut, each way."""
    job = await world.run(lambda session: jobs.get(session, EVERYTHING, job_id))
    assert job is not None
    return steps * boundary_bytes(spec_of(job)) * 4 / 1e9


async def test_egress_is_what_the_reported_steps_sent_each_once(world: World) -> None:
    job_id, agents = await _running(world)
    allocation = await world.allocation(job_id)
    cuts = [(cut["src"], cut["dst"]) for cut in allocation.placement["cuts"]]
    assert len(cuts) == 2
    for src, dst in [*cuts, *((dst, src) for src, dst in cuts)]:
        await world.price("egress", src, [(-10, 0.08)], dst=dst)
    for until in (3, 5):
        agents[0].step(*range(until - 2, until + 1))  # step 3 is reported twice
        await agents[0].beat()
        world.clock.advance(30)
        await bill(world.services, world.leadership)
        await bill(world.services, world.leadership)
    gb = await _sent_gb(world, job_id, 5)
    rows = await _ledger(world, "egress")
    for src, dst in [*cuts, *((dst, src) for src, dst in cuts)]:
        mine = [row for row in rows if (row.region, row.dst) == (src, dst)]
        assert sum(row.quantity for row in mine) == pytest.approx(gb, rel=1e-9)
        assert sum(row.amount_usd for row in mine) == pytest.approx(gb * 0.08, rel=1e-9)
        assert len(mine) == 2


async def test_a_step_that_was_never_told_was_sent_as_well(world: World) -> None:
    job_id, agents = await _running(world)
    for steps in ((1, 2), (5, 6)):
        agents[0].step(*steps)
        await agents[0].beat()
    world.clock.advance(30)
    await bill(world.services, world.leadership)

    gb = await _sent_gb(world, job_id, 6)
    rows = await _ledger(world, "egress")
    assert len(rows) == 4
    assert all(row.quantity == pytest.approx(gb, rel=1e-9) for row in rows)


async def test_a_step_that_is_told_late_was_sent_as_well(world: World) -> None:
    job_id, agents = await _running(world)
    for steps in ((2, 3), (1,), (3, 4)):
        agents[0].step(*steps)
        await agents[0].beat()
        world.clock.advance(30)
        await bill(world.services, world.leadership)

    gb = await _sent_gb(world, job_id, 4)
    sent = defaultdict(float)
    for row in await _ledger(world, "egress"):
        sent[row.region, row.dst] += row.quantity
    assert list(sent.values()) == [pytest.approx(gb, rel=1e-9)] * 4


async def test_a_data_set_is_billed_once_where_it_is_brought_to(world: World) -> None:
    agents = await world.cluster_of("eu-north", "eu-west", slots=3)
    await world.price("egress", "eu-west", [(-10, 0.02)], dst="eu-north")
    job_id = await world.submit(
        placement={"home": "eu-north"}, data=[{"uri": "s3://corpus", "size": "50GB", "regions": ["eu-west"]}]
    )
    await world.plan()
    await world.until_running(agents)
    for _ in range(3):
        world.clock.advance(600)
        await bill(world.services, world.leadership)
    (row,) = await _ledger(world, "egress")
    assert (row.region, row.dst, row.quantity, row.unit) == ("eu-west", "eu-north", 50.0, "GB")
    assert row.amount_usd == pytest.approx(1.0)
    agents[0].exit(1)
    await world.until_stopped(agents)
    world.clock.advance(100)
    assert (await world.snapshot()).waiting[0].brought == {"eu-north"}
    await world.plan()
    await world.until_running(agents)
    world.clock.advance(600)
    await bill(world.services, world.leadership)
    assert (await world.allocation(job_id)).generation == 2
    assert len(await _ledger(world, "egress")) == 1, "it is there already"


async def test_a_rented_pool_costs_rent_and_its_electricity_is_in_it(world: World) -> None:
    await _running(world)

    def rent(session: Session) -> None:
        record = cluster.pool(session, "us-east", "cpu-slot")
        assert record is not None
        cluster.change_pool(session, record, ownership="rented")

    await world.run(rent)
    await world.price("rent", "us-east", [(-10, 2.0)], gpu_type="cpu-slot")
    await world.price("electricity", "us-east", [(-10, 0.3)])
    world.clock.advance(1800)
    await bill(world.services, world.leadership)
    (hired,) = await _ledger(world, "rent")
    assert (hired.region, hired.unit, hired.price) == ("us-east", "GPU-hour", 2.0)
    assert hired.quantity == pytest.approx(0.5, rel=1e-3)
    assert hired.amount_usd == pytest.approx(hired.quantity * 2.0)
    (power,) = await _ledger(world, "electricity", "us-east")
    assert power.quantity > 0
    assert (power.amount_usd, power.price_source) == (0.0, "rented: electricity is in the rent")


async def test_a_process_that_never_told_is_billed_as_busy_once_its_gang_runs(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    await world.submit()
    await world.plan()
    await world.beats(agents)
    world.clock.advance(200)
    await bill(world.services, world.leadership)
    (idle,) = await _ledger(world, "electricity", "eu-north")
    assert idle.quantity / (idle.to_s - idle.from_s) == pytest.approx(0.005 / 3600)
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    await bill(world.services, world.leadership)
    world.clock.advance(200)
    await bill(world.services, world.leadership)
    busy = (await _ledger(world, "electricity", "eu-north"))[-1]
    assert busy.quantity / (busy.to_s - busy.from_s) == pytest.approx(0.020 / 3600)


async def test_what_a_server_ahead_of_the_others_has_billed_is_the_end_of_it(world: World) -> None:
    job_id, agents = await _running(world)
    world.clock.advance(30)
    await bill(world.services, world.leadership)
    world.clock.advance(-0.2)  # the server that hears of the end is behind the one that billed
    await world.cancel(job_id)
    world.clock.advance(-0.05)
    await world.beats(agents)
    world.clock.advance(-0.05)
    await world.beats(agents)
    (allocation,) = await world.allocations(job_id)
    assert allocation.state == "ended"
    assert allocation.ended_at_s == allocation.billed_until_s
    assert allocation.ended_at_s == max(row.to_s for row in await _ledger(world, "electricity"))


async def test_what_a_job_is_told_to_have_cost_is_the_sum_of_its_bills(world: World) -> None:
    await FakeAgent(world, "eu-north").join()  # the region must be there to be priced
    await world.price("electricity", "eu-north", [(-3600, 0.10), (600, 0.50)])
    job_id, agents = await _running(world)
    for step in (1, 2, 3):
        agents[-1].step(step)
        await world.beats(agents)
        world.clock.advance(400)
        await bill(world.services, world.leadership)
    rows = await world.run(lambda session: _rows.all(session, order_by=[LedgerRow.seq]))
    kept = await world.run(lambda session: ledger.spent_by_jobs(session, [job_id]))
    assert {(each.kind, each.region) for each in kept} == {(row.kind, row.region) for row in rows}
    assert len(kept) < len(rows)
    for each in kept:
        mine = [row for row in rows if (row.kind, row.region) == (each.kind, each.region)]
        assert each.quantity == pytest.approx(math.fsum(row.quantity for row in mine), rel=1e-12)
        assert each.amount_usd == pytest.approx(math.fsum(row.amount_usd for row in mine), rel=1e-12)
        assert each.unpriced == sum(row.price is None for row in mine)
    assert {bool(each.unpriced) for each in kept} == {True, False}
