"""Grid W with a codec is the same worlds but for the codec, set against the same policy without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.bench.coded import coded_world, run, section
from scheduler.bench.entries import entries_of
from scheduler.bench.sources import Sources
from scheduler.bench.wan import WanCell
from scheduler.bench.worlds import Split
from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import LowRank

CELL = WanCell(Split.TUNING, 8, "all")


@pytest.mark.shared_data
def test_a_coded_world_differs_in_the_codec_alone(data_dir) -> None:
    world = CELL.world(0, Sources(data_dir))
    coded = coded_world(world, 8)

    assert coded_world(world, 1) == world
    assert [job.spec.parallelism.codec for job in coded.jobs] == [
        LowRank(job.spec.model.hidden // 8) for job in world.jobs
    ]
    uncoded = [
        replace(job, spec=replace(job.spec, parallelism=replace(job.spec.parallelism, codec=None)))
        for job in coded.jobs
    ]
    assert replace(coded, jobs=tuple(uncoded)) == world


@pytest.mark.shared_data
def test_bounds_are_no_policy_to_compare(data_dir) -> None:
    with pytest.raises(InvalidValueError, match="bounds know no cuts"):
        next(run([CELL], 1, entries_of(["bounds"]), [1], Sources(data_dir)))


def test_a_codec_is_told_against_the_same_policy_without() -> None:
    figures = {"jct_mean_s": 100.0, "electricity_usd": 10.0, "egress_usd": 8.0, "paid_usd": 18.0}
    coded = {"jct_mean_s": 90.0, "electricity_usd": 10.0, "egress_usd": 1.0, "paid_usd": 11.0}
    cells = {("bace", 1): {"c": {0: figures}}, ("bace", 8): {"c": {0: coded}}}

    ((row,),) = [table.rows for table in section(cells).tables]

    assert row == ("bace", "8", "1", "−10.0", "0.0", "−87.5", "−38.9")
