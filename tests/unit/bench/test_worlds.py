"""Worlds depend on cell and draw alone, and are what the grids say they are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scheduler.bench.alone import options_of
from scheduler.bench.figures import offered_load
from scheduler.bench.paper import PaperCell, drawn_regions
from scheduler.bench.paper_jobs import drawn_jobs
from scheduler.bench.real import RealCell, real_cells
from scheduler.bench.sources import Sources
from scheduler.bench.wan import WanCell
from scheduler.bench.worlds import USUAL, Split
from scheduler.job import Elasticity, Schedule
from scheduler.replay.faults import faults_of

pytestmark = pytest.mark.shared_data


@pytest.fixture(scope="module")
def sources(data_dir: Path) -> Sources:
    return Sources(data_dir)


def test_a_draw_is_the_same_every_time_and_another_in_the_other_split(sources: Sources) -> None:
    cell = PaperCell(Split.TUNING, 8, "poisson")
    assert cell.world(3, sources) == cell.world(3, sources)
    assert cell.world(3, sources).jobs != cell.world(4, sources).jobs
    assert cell.world(3, sources).jobs != replace(cell, split=Split.HELD_OUT).world(3, sources).jobs
    regions = [drawn_regions(split, draw) for split in Split for draw in range(10)]
    assert len({str(each) for each in regions}) == len(regions)


def test_a_longer_list_of_jobs_begins_with_the_shorter(sources: Sources) -> None:
    few, many = (drawn_jobs(Split.TUNING, 1, count, "poisson", USUAL) for count in (8, 24))
    assert many[:8] == few
    assert [job.submit_s for job in many] == sorted(job.submit_s for job in many)


def test_conduct_changes_nothing_else(sources: Sources) -> None:
    usual = PaperCell(Split.TUNING, 8, "all").world(0, sources)
    strict = replace(USUAL, schedule=Schedule.ONE_F_ONE_B, elasticity=Elasticity.NONE, sigma=0.0, bias=2.0)
    other = PaperCell(Split.TUNING, 8, "all", conduct=strict).world(0, sources)
    assert other.scenario.cluster == usual.scenario.cluster
    for job, twin in zip(usual.jobs, other.jobs, strict=True):
        assert twin.actual_steps == job.actual_steps
        assert twin.spec.training.steps == 2 * job.actual_steps
        assert (twin.spec.training.schedule, twin.spec.elasticity) == (strict.schedule, strict.elasticity)


@pytest.mark.parametrize("split", list(Split))
def test_every_drawn_cluster_can_run_every_job(sources: Sources, split: Split) -> None:
    """At × 0.5 the cluster, at × 1 one region: else policies of one region would be judged by other jobs."""
    for draw in range(10):
        for scale in (0.5, 1.0):
            world = PaperCell(split, 24, "all", gpus=scale).world(draw, sources)
            least = [options_of(job, world.scenario.cluster)[0].gpus for job in world.jobs]
            pools = [pool.gpus for pool in world.scenario.cluster.pools.values()]
            assert max(least) <= (sum(pools) if scale < 1 else max(pools))


def test_scales_multiply_links_and_pools(sources: Sources) -> None:
    plain = PaperCell(Split.TUNING, 8, "all").world(2, sources).scenario.cluster
    scaled = PaperCell(Split.TUNING, 8, "all", bandwidth=0.3, gpus=1.25).world(2, sources).scenario.cluster
    for key, link in plain.links.items():
        assert scaled.links[key].capacity_bps == pytest.approx(0.3 * link.capacity_bps)
        assert 25e9 <= link.capacity_bps <= 100e9
        assert link.egress_usd_per_gb == 0
    for pool_key, pool in plain.pools.items():
        assert scaled.pools[pool_key].gpus == int(1.25 * pool.gpus)


def test_the_wan_has_the_jobs_of_the_paper_and_measured_links(sources: Sources) -> None:
    paper, wan = (kind(Split.TUNING, 8, "all").world(5, sources) for kind in (PaperCell, WanCell))
    assert wan.jobs == paper.jobs
    assert wan.scenario.cluster.pools == paper.scenario.cluster.pools
    link = wan.scenario.cluster.links["eu-west-1", "us-east-2"]
    assert (link.capacity_bps, link.latency_s, link.egress_usd_per_gb) == (1.14e9, 0.077 / 2, 0.02)
    assert wan.scenario.cluster.links["ap-southeast-2", "us-east-2"].egress_usd_per_gb == 0.098


def test_windows_keep_the_pools_and_the_half_year(sources: Sources) -> None:
    for split, months in ((Split.TUNING, range(1, 7)), (Split.HELD_OUT, range(7, 13))):
        cell = RealCell(split, "kalos-x5", "list")
        worlds = [cell.world(draw, sources) for draw in range(cell.draws)]
        windows = set()
        for world in worlds:
            for offset_s in (0.0, world.jobs[-1].submit_s):
                at = datetime.fromtimestamp(world.scenario.start_s + offset_s, UTC)
                assert (at.year, at.month in months) == (2023, True)
            pools = tuple(pool.gpus for pool in world.scenario.cluster.pools.values())
            assert sorted(pools) == sorted(p.gpus for p in worlds[0].scenario.cluster.pools.values())
            windows.add((world.scenario.start_s, pools))
        assert len(windows) == cell.draws == 20


def test_a_tenth_of_a_window_warms_it_up(sources: Sources) -> None:
    world = RealCell(Split.TUNING, "kalos-x10", "list").world(0, sources)
    assert 0 < len(world.measured) < len(world.jobs)
    assert min(job.submit_s for job in world.measured) >= 0.1 * world.jobs[-1].submit_s


def test_an_owned_backbone_is_free_and_nothing_else(sources: Sources) -> None:
    paid, free = (RealCell(Split.TUNING, "kalos-x1", kind).world(0, sources) for kind in ("list", "owned"))
    assert paid.jobs == free.jobs
    assert any(link.egress_usd_per_gb for link in paid.scenario.cluster.links.values())
    for key, link in free.scenario.cluster.links.items():
        assert link == replace(paid.scenario.cluster.links[key], egress_usd_per_gb=0.0)


def test_philly_is_held_out_and_as_dense_as_told(sources: Sources) -> None:
    assert "philly" not in {cell.workload for cell in real_cells(Split.TUNING)}
    cell = RealCell(Split.HELD_OUT, "philly", "list")
    for draw in range(4):
        assert offered_load(cell.world(draw, sources)) == pytest.approx(0.85)
    first, again = cell.world(0, sources), cell.world(4, sources)
    assert [job.spec.job_id for job in first.jobs] == [job.spec.job_id for job in again.jobs]
    assert first.scenario.start_s != again.scenario.start_s


def test_prices_go_on_after_the_year_with_the_same_hours_and_weekdays(sources: Sources) -> None:
    scenario = RealCell(Split.HELD_OUT, "kalos-x1", "list").world(0, sources).scenario
    new_year_s = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    for series in scenario.electricity.values():
        assert series.end_s > new_year_s + 150 * 86400
        for hours in (0, 13, 1000):
            later_s = new_year_s + hours * 3600
            assert series.at(later_s) == series.at(later_s - 364 * 86400)
        assert series.at(new_year_s - 3600) is not None


def test_nodes_fail_where_the_cell_says_so(sources: Sources) -> None:
    cell = RealCell(Split.TUNING, "kalos-x1", "list", faults=True)
    first, second = (faults_of(cell.world(draw, sources).scenario) for draw in (0, 1))
    assert first
    assert first != second
    assert faults_of(replace(cell, faults=False).world(0, sources).scenario) == ()
