"""In one region at one price, where only the order of jobs is left to choose, nobody loses to EASY backfill."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from scheduler.bench.figures import figures_of, named_gpus, offered_load
from scheduler.bench.single import LOAD, SingleCell, Trace, single_cells
from scheduler.bench.sources import Sources
from scheduler.bench.worlds import Split, World
from scheduler.policies import PolicyConfig
from scheduler.replay.engine import replay
from scheduler.replay.traces import read_trace

pytestmark = pytest.mark.shared_data

TOLERANCE = 1.02
BUSY: dict[Trace, tuple[str, slice]] = {
    "helios": ("helios_venus_2vc", slice(400, 800)),
    "philly": ("philly_ge4gpu", slice(0, 400)),
}
"""Parts of the traces in which jobs wait at all."""


@pytest.fixture(scope="module")
def sources(data_dir: Path) -> Sources:
    return Sources(data_dir)


def rigid_cells() -> list[SingleCell]:
    return [cell for cell in single_cells(Split.HELD_OUT) if cell.rigid]


@cache
def busy_part(cell: SingleCell, sources: Sources) -> World:
    file, part = BUSY[cell.trace]
    return cell.world_of(read_trace(sources.trace(file))[part], 1, sources)


@pytest.mark.parametrize("cell", single_cells(Split.HELD_OUT), ids=lambda cell: cell.name)
def test_a_world_is_one_region_of_the_size_that_its_jobs_want(cell: SingleCell, sources: Sources) -> None:
    world = cell.world(1, sources)
    (pool,) = world.cluster.pools.values()
    largest = max(named_gpus(job) for job in world.jobs)
    assert pool.gpus == largest or offered_load(world) == pytest.approx(LOAD, rel=0.01)
    assert pool.gpus >= largest
    for job in world.jobs if cell.rigid else ():
        parallelism = job.spec.parallelism
        assert parallelism.stages_min == parallelism.stages_max == parallelism.named_stages


@pytest.mark.parametrize("cell", rigid_cells(), ids=lambda cell: cell.name)
@pytest.mark.parametrize("policy", ["bace", "horizon"])
def test_nobody_is_slower_than_easy_backfill(cell: SingleCell, policy: str, sources: Sources) -> None:
    world = busy_part(cell, sources)
    easy, ours = (
        figures_of(world, replay(world.scenario, world.jobs, PolicyConfig(name=name)))
        for name in ("easy", policy)
    )
    assert easy["jct_mean_s"] is not None
    assert ours["jct_mean_s"] is not None
    print(f"{cell.name}: {policy} {ours['jct_mean_s'] / easy['jct_mean_s'] - 1:+.1%} against EASY backfill")
    assert ours["jct_mean_s"] <= TOLERANCE * easy["jct_mean_s"]
    assert ours["electricity_usd"] == pytest.approx(easy["electricity_usd"])
