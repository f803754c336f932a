"""The what-if of schedules: it tells what the planner, the bill and the checked plan of each would tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scheduler import cost
from scheduler.cluster import Ownership
from scheduler.errors import InvalidValueError
from scheduler.evaluate import evaluate
from scheduler.job import JobSpec, Recompute
from scheduler.network import Residual
from scheduler.pipeline.plan.catalogue import SCHEDULES, order_of
from scheduler.pipeline.plan.memory import peak_bytes
from scheduler.pipeline.plan.order_run import run_order
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.picture import MOST_BOXES, svg
from scheduler.pipeline.plan.setting import Setting
from scheduler.pipeline.plan.timing import timeline
from scheduler.pipeline.plan.what_if import Runs, WhatIf, what_if
from scheduler.pipeline.plan.where import NoPlacementError, chosen, named
from scheduler.policies import PolicyConfig
from scheduler.snapshot import Snapshot
from scheduler.spec.job import parse_job
from scheduler.spec.scenario import load_scenario
from scheduler.units import format_duration

SCENARIO = Path(__file__).parents[3] / "deploy" / "examples" / "scenarios" / "three-regions.yaml"
CHAIN = "eu-west-2:1,eu-west-3:1,eu-central-1:2"


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """London, Paris and Frankfurt, nothing running."""
    scenario = load_scenario(SCENARIO)
    prices = {region: series.known(scenario.start_s) for region, series in scenario.electricity.items()}
    return Snapshot(1, scenario.start_s, scenario.cluster, prices)


def job(model: str = "llama-3.1-8b", stages: int | str = 4, **training: object) -> JobSpec:
    document = {
        "name": "what-if",
        "model": {"preset": model, "seq_len": 2048},
        "training": {"steps": 100, "micro_batches": 8, "schedule": "auto", **training},
        "parallelism": {"stages": stages},
    }
    return parse_job(document).to_spec("job-1", "default", 0.0)


def asked(spec: JobSpec, snapshot: Snapshot, chain: str = CHAIN) -> WhatIf:
    stand = named(chain, spec, snapshot)
    return what_if(snapshot, Setting.of(spec, stand.residual, stand.placement))


def rows(made: WhatIf) -> dict[str, object]:
    return {row.schedule: row for row in made.rows}


def test_every_schedule_is_told_and_is_what_the_checked_plan_says(snapshot):
    made = asked(job(), snapshot)
    assert [row.schedule for row in made.rows] == list(SCHEDULES)
    for row in made.rows:
        assert row.figures is not None, row.note
        pipeline, order = order_of(made.setting, row.schedule)
        roomy = replace(
            pipeline, workers=tuple(replace(worker, memory_bytes=1e15) for worker in pipeline.workers)
        )
        plan = plan_of(roomy, order)
        took = timeline(plan)
        assert row.figures.iteration_s == pytest.approx(took.makespan_s, rel=0.05)
        assert row.figures.iteration_s > took.makespan_s  # the end of an iteration is in it
        assert row.figures.peak_bytes == pytest.approx(peak_bytes(plan), rel=1e-12)
        assert row.figures.fits == all(
            peak <= most for peak, most in zip(peak_bytes(plan), made.setting.memory_bytes, strict=True)
        )
        idle = 1 - sum(took.busy_s) / (4 * row.figures.iteration_s)
        assert row.figures.bubble_fraction == pytest.approx(idle, rel=1e-9)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "slack-1f1b"])
def test_windows_are_what_the_planner_predicts(snapshot, schedule):
    spec = job(schedule=schedule)
    made = asked(spec, snapshot)
    placement = made.setting.placement
    evaluation = evaluate(spec, snapshot.cluster, placement.segments, placement.cuts)
    figures = rows(made)[schedule].figures
    assert figures.iteration_s == pytest.approx(evaluation.iteration_s, rel=1e-12)
    assert figures.fits == evaluation.fits
    assert figures.comes_to == evaluation.placement.schedule.value


def test_auto_is_the_fastest_line_that_fits_and_no_slower_than_the_planners(snapshot):
    spec = job()
    made = asked(spec, snapshot)
    found = rows(made)
    on_a_line = [
        each.figures.iteration_s
        for name, each in found.items()
        if name in ("gpipe", "1f1b", "slack-1f1b", "zb-h1", "generated") and each.figures.fits
    ]
    auto = found["auto"].figures
    assert auto.fits
    assert auto.iteration_s <= min(on_a_line) * (1 + 1e-9)
    placement = made.setting.placement
    assert auto.iteration_s <= evaluate(
        spec, snapshot.cluster, placement.segments, placement.cuts
    ).iteration_s * (1 + 1e-9)


def test_what_crosses_a_link_and_what_it_costs_follow_the_layout(snapshot):
    spec = job()
    found = rows(asked(spec, snapshot))
    message = 2048 * 4096 * 2  # sequence × hidden × 2 bytes

    def sent(schedule: str) -> dict[tuple[str, str], float]:
        return {(use.src, use.dst): use.sent_bytes / message for use in found[schedule].figures.links}

    there, onward = ("eu-west-2", "eu-west-3"), ("eu-west-3", "eu-central-1")
    back = [ends[::-1] for ends in (there, onward)]
    assert sent("1f1b") == dict.fromkeys((there, onward, *back), 8)
    assert sent("zb-v") == dict.fromkeys((there, onward, *back), 16)  # up and down
    # Round and round: each cut twice, and once from the last region to the first, over a link of its own.
    closing = ("eu-central-1", "eu-west-2")
    assert sent("interleaved") == {
        **dict.fromkeys((there, onward, *back), 16),
        **dict.fromkeys((closing, closing[::-1]), 8),
    }
    figures = found["zb-v"].figures
    assert figures.usd.egress == pytest.approx(1000 * 4 * 16 * message / 1e9 * 0.02)
    assert figures.usd.rent == 0
    assert figures.usd.total == figures.usd.electricity + figures.usd.egress


def test_electricity_is_what_the_cost_module_says_at_the_prices_of_now(snapshot):
    spec = job(schedule="1f1b")
    made = asked(spec, snapshot)
    placement = made.setting.placement
    evaluation = evaluate(spec, snapshot.cluster, placement.segments, placement.cuts)
    powers_w = cost.segment_powers_w(placement, evaluation.busy_fraction, snapshot.cluster.gpu_types)
    expected = sum(
        cost.energy_kwh(
            cost.facility_kw(segment.gpus, power_w, snapshot.cluster.regions[segment.region].pue),
            1000 * evaluation.iteration_s,
        )
        * snapshot.electricity[segment.region].at(snapshot.now_s)
        for segment, power_w in zip(placement.segments, powers_w, strict=True)
    )
    assert rows(made)["1f1b"].figures.usd.electricity == pytest.approx(expected)
    assert made.unpriced_regions == ()


def test_rented_gpus_pay_rent_and_a_region_without_a_price_is_named(snapshot):
    pools = {
        key: replace(pool, ownership=Ownership.RENTED, rent_usd_per_gpu_hour=2.0)
        if key[0] == "eu-west-2"
        else pool
        for key, pool in snapshot.cluster.pools.items()
    }
    prices = {name: known for name, known in snapshot.electricity.items() if name != "eu-west-3"}
    world = replace(snapshot, cluster=replace(snapshot.cluster, pools=pools), electricity=prices)
    made = asked(job(), world)
    figures = rows(made)["1f1b"].figures
    assert made.unpriced_regions == ("eu-west-3",)
    assert figures.usd.rent == pytest.approx(1000 * figures.iteration_s / 3600 * 2.0)


@pytest.mark.parametrize(
    ("changes", "schedule", "why"),
    [
        ({"model": "llama-2-13b", "stages": 8}, "zb-v", "model.layers is 40, it needs a multiple of 16"),
        ({"micro_batches": 6}, "interleaved", "micro_batches is 6, it needs a multiple of 4 ranks"),
        ({"micro_batches": 6}, "dualpipev", "at least 2 × 4 ranks"),
        ({"recompute": "full"}, "zb-h1", "training.recompute is full, it needs selective or none"),
        ({"micro_batches": 8192}, "looped-bfs", "at most 8192"),
    ],
)
def test_where_a_schedule_cannot_be_its_row_says_why(snapshot, changes, schedule, why):
    chain = CHAIN.replace(":2", ":6") if changes.get("stages") == 8 else CHAIN
    found = rows(asked(job(**changes), snapshot, chain))[schedule]
    assert found.figures is None
    assert found.runs is Runs.NOT
    assert why in found.note
    assert rows(asked(job(**changes), snapshot, chain))["1f1b"].figures is not None


def test_without_a_link_back_the_chain_cannot_be_gone_round(snapshot):
    links = {
        key: link for key, link in snapshot.cluster.links.items() if set(key) != {"eu-west-2", "eu-central-1"}
    }
    world = replace(snapshot, cluster=replace(snapshot.cluster, links=links))
    found = rows(asked(job(), world))
    assert "a free link between the last region and the first" in found["interleaved"].note
    assert found["zb-v"].figures is not None


def test_what_a_worker_can_run_is_told(snapshot):
    found = rows(asked(job(), snapshot))
    assert {name for name, row in found.items() if row.runs is Runs.NOT} == {
        "interleaved", "looped-bfs", "chimera",
    }  # fmt: skip
    assert "two regions at most" in found["interleaved"].note, "this chain has three"
    in_two = rows(asked(job(), snapshot, "eu-west-2:2,eu-west-3:2"))
    assert {name for name, row in in_two.items() if row.runs is Runs.NOT} == {"chimera"}
    assert found["auto"].note is None
    command = replace(job(), training=replace(job().training, splits_backward=False))
    of_command = rows(asked(command, snapshot))
    assert {name for name, row in of_command.items() if row.runs is Runs.ASKED} == {
        "gpipe", "1f1b", "slack-1f1b", "auto",
    }  # fmt: skip
    slack_s = of_command["slack-1f1b"].figures.iteration_s
    assert of_command["auto"].note == (
        "the best of all; what this job would be given, whose workers are told no order, is slack-1f1b, "
        f"{format_duration(slack_s)}"
    )
    large = rows(asked(job(micro_batches=4096), snapshot))
    assert large["auto"].figures is not None


def updating(schedule: str, rule: str, every: int = 4, codec: bool = False, **training: object) -> JobSpec:
    document = {
        "name": "what-if",
        "model": {"preset": "gpt-3-1.3b"},
        "training": {"steps": 100, "micro_batches": 8, "schedule": schedule, **training},
        "parallelism": {"stages": 4, **({"codec": {"mapl": {"rank": 64}}} if codec else {})},
        "run": {"builtin": "gpt", "updates": {"rule": rule, "every": every}},
    }
    return parse_job(document).to_spec("job-1", "default", 0.0)


@pytest.mark.parametrize("codec", [False, True])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "slack-1f1b", "auto"])
def test_updates_within_an_iteration_are_in_what_their_job_is_told(snapshot, schedule, codec):
    spec = updating(schedule, "paci", codec=codec)
    made = asked(spec, snapshot)
    figures = rows(made)[schedule].figures
    given = evaluate(spec, made.setting.cluster, made.setting.placement.segments, made.setting.placement.cuts)
    assert figures.iteration_s == pytest.approx(given.iteration_s, rel=1e-12)
    if schedule != "gpipe" and not codec:
        assert figures.iteration_s < rows(asked(job("gpt-3-1.3b"), snapshot))[schedule].figures.iteration_s, (
            "it stays full"
        )
    for name, row in rows(made).items():
        if name not in ("gpipe", "1f1b", "slack-1f1b", "auto"):
            assert (row.figures, row.runs) == (None, Runs.NOT)
            assert "run.updates is given, it needs to be left out" in row.note


def test_more_in_flight_than_updates_allow_does_not_fit(snapshot):
    found = rows(asked(updating("1f1b", "2bw"), snapshot))
    assert found["1f1b"].figures.fits
    assert not found["gpipe"].figures.fits, "8 micro-batches, and two versions are for 5"


def test_memory_that_is_too_small_is_told_rank_by_rank(snapshot):
    types = {name: replace(gpu, memory_bytes=90e9) for name, gpu in snapshot.cluster.gpu_types.items()}
    world = replace(snapshot, cluster=replace(snapshot.cluster, gpu_types=types))
    spec = job(micro_batches=16, recompute=Recompute.NONE.value)
    found = rows(asked(spec, world))
    assert not found["gpipe"].figures.fits
    assert found["auto"].figures.fits
    assert max(found["auto"].figures.peak_bytes) <= 0.95 * 90e9


def test_one_rank_that_is_too_full_is_enough_not_to_fit(snapshot):
    cluster, gpu = snapshot.cluster, snapshot.cluster.gpu_types["A100-80G"]
    small = replace(gpu, name="SMALL", memory_bytes=50e9)
    pool = replace(cluster.pools["eu-west-3", "A100-80G"], gpu_type="SMALL")
    world = replace(
        snapshot,
        cluster=replace(
            cluster,
            gpu_types={**cluster.gpu_types, "SMALL": small},
            pools={**cluster.pools, pool.key: pool},
        ),
    )
    spec = job(micro_batches=9)
    made = asked(spec, world, "eu-west-2:1,eu-west-3/SMALL:1,eu-central-1:2")
    figures = rows(made)["gpipe"].figures
    too_full = [peak > most for peak, most in zip(figures.peak_bytes, made.setting.memory_bytes, strict=True)]
    assert too_full == [False, True, False, False]
    assert not figures.fits
    assert rows(made)["auto"].figures.fits


def test_a_named_chain_has_what_is_free_of_its_links(snapshot):
    stand = named(CHAIN, job(), snapshot)
    assert stand.placement.describe() == "eu-west-2:1>eu-west-3:1>eu-central-1:2"
    # 25 Gbit/s a pair; the region between has 40 Gbit/s for two cuts.
    assert [cut.bandwidth_bps for cut in stand.placement.cuts] == [20e9, 20e9]
    assert [cut.latency_s for cut in stand.placement.cuts] == [0.005, 0.005]
    assert named("eu-west-2>eu-west-3:1".replace("2>", "2:1>"), job(stages=2), snapshot).placement.stages == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("eu-west-2", "regions with their stages in pipeline order"),
        ("eu-west-2:0", "regions with their stages in pipeline order"),
        ("", "regions with their stages in pipeline order"),
        ("mars:2", "a region that there is: eu-central-1, eu-west-2, eu-west-3"),
        ("eu-west-2/H100:2", "GPUs that are there: A100-80G"),
        ("eu-west-2:999", "at most 48 stages of 1 GPUs"),
        ("eu-west-2:1,eu-west-3:1,eu-west-2:1", "every region once"),
        ("eu-west-2:33", "layers = 32"),
    ],
)
def test_a_chain_that_is_none_is_refused_with_what_would_be_right(snapshot, text, why):
    with pytest.raises(InvalidValueError, match=why):
        named(text, job(), snapshot)


def test_of_two_types_of_gpu_one_must_be_named(snapshot):
    cluster = snapshot.cluster
    other = replace(cluster.gpu_types["A100-80G"], name="H100")
    pool = replace(cluster.pools["eu-west-2", "A100-80G"], gpu_type="H100")
    world = replace(
        snapshot,
        cluster=replace(
            cluster, gpu_types={**cluster.gpu_types, "H100": other}, pools={**cluster.pools, pool.key: pool}
        ),
    )
    with pytest.raises(InvalidValueError, match="eu-west-2/A100-80G:2 or eu-west-2/H100:2"):
        named("eu-west-2:2", job(), world)
    mixed = named("eu-west-2/H100:2,eu-west-2/A100-80G:2", job(), world)
    assert len(mixed.placement.segments) == 2
    assert mixed.placement.cuts == ()


def test_without_a_name_it_is_where_the_policy_would_start_it(snapshot):
    stand = chosen(job(stages="auto"), snapshot, PolicyConfig())
    assert stand.why.startswith("bace's choice now. ")
    assert stand.placement.stages >= 2
    assert stand.residual.congestion() == Residual.of(snapshot).congestion()
    with pytest.raises(NoPlacementError, match="MemoryTooSmall"):
        chosen(replace(job(), training=replace(job().training, micro_batch=4096)), snapshot, PolicyConfig())


@pytest.mark.parametrize("schedule", ["auto", "zb-v"])
def test_the_picture_has_a_box_for_every_computation_and_a_line_for_every_message(snapshot, schedule):
    made = asked(job(), snapshot)
    pipeline, order = order_of(made.setting, schedule)
    drawn_as = svg("<a> & b", pipeline, run_order(pipeline, order))
    picture = ElementTree.fromstring(drawn_as)  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    drawn = picture.findall(f"{space}rect")
    boxes = [each for each in drawn if "box" in each.get("class", "").split()]
    assert len(boxes) == sum(map(len, order))
    crossings = 4 if schedule == "zb-v" else 2
    lines = [each for each in picture.findall(f"{space}path") if "message" in each.get("class", "").split()]
    assert len(lines) == 2 * crossings * 8 + 2  # and two in the legend
    assert picture.get("aria-label") == "<a> & b"
    right = max(float(each.get("x")) + float(each.get("width")) for each in boxes)
    assert right <= 1200
    texts = [each.text for each in picture.findall(f"{space}text")]
    assert {"eu-west-2", "eu-west-3", "eu-central-1"} <= set(texts)


def test_a_long_iteration_is_drawn_as_far_as_it_can_be_read(snapshot):
    spec = job(micro_batches=2048)
    stand = named(CHAIN, spec, snapshot)
    pipeline, order = order_of(Setting.of(spec, stand.residual, stand.placement), "1f1b")
    text = svg("long", pipeline, run_order(pipeline, order))
    assert len(text) < 300_000
    assert text.count('class="box') <= 4 * MOST_BOXES + 4
    assert "the first " in text


def test_an_unknown_schedule_is_refused_by_name(snapshot):
    with pytest.raises(InvalidValueError, match="gpipe, 1f1b, slack-1f1b, zb-h1"):
        order_of(asked(job(), snapshot).setting, "zigzag")
