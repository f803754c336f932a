"""Scenario files: what they come to, and what is told where they are wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scheduler.cluster import Ownership, RestartCosts
from scheduler.objective import Objective
from scheduler.spec.issues import SpecError
from scheduler.spec.scenario import load_scenario
from scheduler.spec.scenario_jobs import TraceFile
from tests.replay_worlds import job, write_scenario

EXAMPLE = Path(__file__).parents[3] / "deploy/examples/scenarios/three-regions.yaml"

SCENARIO = """\
start: 2026-01-01T00:00:00Z
gpus:
  A6000: {tflops: 155, mfu: 0.4, memory: 48GB, power_w: 300}
regions:
  - {name: r1, gpus: {A6000: 33}, pue: 1.15, price: {usd_per_kwh: 0.27}, uplink_gbps: 100}
  - {name: r2, gpus: {A6000: 8, H100: 16}, price: {csv: prices.csv, column: z, unit: usd_per_mwh, known: real-time},
     rent_usd_per_gpu_hour: 2.5}
links: {csv: links.csv, columns: {gbps: speed}}
jobs:
  - {name: one, submit: 2h, model: {preset: llama-2-7b}, training: {steps: 10}}
training: {schedule: gpipe, recompute: full}
scale: {bandwidth: 2, gpus: 0.5, arrivals: 4}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a good scenario and its inputs."""
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    hours = [f"2026-01-{day:02d}T{hour:02d}:00Z,{100 + hour}" for day in (1, 2) for hour in range(24)]
    (tmp_path / "prices.csv").write_text("\n".join(["timestamp_utc,z", *hours]))
    (tmp_path / "links.csv").write_text("src,dst,speed,rtt_ms\nr1,r2,10,20\nr2,r1,5,20\n")
    return tmp_path


def broken(folder: Path, old: str, new: str) -> list[str]:
    """The messages about the scenario with one text replaced."""
    assert SCENARIO.count(old) == 1
    (folder / "scenario.yaml").write_text(SCENARIO.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_scenario(folder / "scenario.yaml")
    return caught.value.lines()


def test_a_scenario_becomes_a_scaled_cluster_with_prices_and_jobs(folder: Path) -> None:
    scenario = load_scenario(folder / "scenario.yaml")
    cluster = scenario.cluster
    assert cluster.pools["r1", "A6000"].gpus == 16  # 33 × 0.5, rounded down
    assert cluster.pools["r2", "H100"].ownership is Ownership.RENTED
    assert cluster.gpu_types["A6000"].idle_w == 300  # the constant draw
    assert cluster.gpu_types["A6000"].sustained_flops == pytest.approx(62e12)
    assert cluster.links["r1", "r2"].capacity_bps == 20e9
    assert cluster.links["r2", "r1"].latency_s == 0.01
    assert (cluster.regions["r1"].uplink_bps, cluster.regions["r1"].downlink_bps) == (100e9, math.inf)
    assert scenario.electricity["r2"].at(scenario.start_s + 3600) == pytest.approx(0.101)
    assert isinstance(scenario.jobs, tuple)
    (job,) = scenario.jobs
    assert (job.submit_s, job.actual_steps) == (7200.0, 10)
    assert (job.document.training.schedule, job.document.training.recompute) == ("gpipe", "full")


def test_what_a_restart_takes_may_be_told(folder: Path) -> None:
    assert load_scenario(folder / "scenario.yaml").cluster.restart == RestartCosts()
    told = "restart: {fixed: 5m, storage_gbps_per_gpu: 0.5, checkpoint_every: 2h}\n"
    (folder / "scenario.yaml").write_text(SCENARIO + told)
    assert load_scenario(folder / "scenario.yaml").cluster.restart == RestartCosts(300.0, 0.5e9, 7200.0)
    (folder / "scenario.yaml").write_text(SCENARIO + "restart: {checkpoint_every: 0s}\n")
    with pytest.raises(SpecError, match="checkpoint_every"):
        load_scenario(folder / "scenario.yaml")


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        (
            "A6000: 33",
            "A6000: -1",
            5,
            "regions.0.gpus.A6000: -1 is not valid: expected greater than or equal to 0",
        ),
        ("A6000: 33", "B999: 33", 5, "regions.0.gpus.B999: 'B999' is not valid: expected a GPU type"),
        ("pue: 1.15", "pue: 0.9", 5, "regions.0.pue: 0.9"),
        ("pue: 1.15", "pue: .nan", 5, "regions.0.pue: nan"),
        ("uplink_gbps: 100", "uplink: 100", 5, "did you mean uplink_gbps?"),
        ("usd_per_kwh: 0.27", "usd_per_kwh: 0.27, csv: prices.csv", 5, "exactly one of"),
        ("{usd_per_kwh: 0.27}", "{}", 5, "exactly one of"),
        ("usd_per_kwh: 0.27", "usd_per_kwh: 0.27, known: real-time", 5, "regions.0.price.known"),
        ("column: z", "column: y", 6, "expected one of the columns timestamp_utc, z"),
        (
            "csv: prices.csv",
            "csv: none.csv",
            6,
            "regions.1.price.csv: 'none.csv' is not valid: expected a CSV",
        ),
        (", known: real-time", "", 6, "known is required with csv"),
        ("name: r2", "name: r1", 6, "every region once"),
        ("speed", "fast", 8, "expected one of the columns src, dst, speed, rtt_ms"),
        ("links.csv, columns: {gbps: speed}", "links.csv, columns: {gb: speed}", 8, "links.columns.gb"),
        ("submit: 2h", "submit: later", 10, "jobs.0.submit: 'later'"),
        ("steps: 10", "steps: 0", 10, "jobs.0.training.steps: 0"),
        ("steps: 10}", "steps: 10}, deadline: 2027-01-01", 10, "jobs.0.deadline"),
        ("steps: 10}", "steps: 10}, placement: {regions: [mars-*]}", 10, "one of the regions r1, r2"),
        ("2026-01-01T00:00:00Z", "tomorrow", 1, "start: 'tomorrow'"),
        ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", 6, "a price at the scenario's start"),
        ("gpus: 0.5", "gpus: 0", 12, "scale.gpus: 0"),
        ("memory: 48GB", "memory: much", 3, "gpus.A6000.memory: 'much'"),
        ("power_w: 300", "power_w: 300, idle_w: 400", 3, "at most power_w"),
        ("schedule: gpipe", "schedule: guess", 11, "training.schedule: 'guess'"),
    ],
)
def test_what_is_wrong_names_file_line_field_value_and_what_would_be_right(
    folder: Path, old: str, new: str, line: int, told: str
) -> None:
    messages = broken(folder, old, new)
    assert any(
        message.startswith(f"{folder / 'scenario.yaml'}:{line}: ") and told in message for message in messages
    ), messages


def test_a_bad_row_of_an_input_is_named_with_its_file(folder: Path) -> None:
    (folder / "prices.csv").write_text("timestamp_utc,z\n2026-01-01T00:00Z,1\n2026-01-01T03:00Z,1\n")
    with pytest.raises(SpecError) as caught:
        load_scenario(folder / "scenario.yaml")
    assert f"{folder / 'prices.csv'}:3: timestamp_utc" in str(caught.value)
    assert "a gap of 2 hours" in str(caught.value)


def test_a_trace_that_is_not_there_is_named_as_the_scenario_names_it(folder: Path) -> None:
    text, _, rest = SCENARIO.partition("jobs:")
    after = rest[rest.index("\ntraining:") :]
    (folder / "scenario.yaml").write_text(f"{text}jobs: {{trace: ../none.csv}}{after}")
    with pytest.raises(SpecError) as caught:
        load_scenario(folder / "scenario.yaml")
    (message,) = caught.value.lines()
    assert message.startswith(
        f"{folder / 'scenario.yaml'}:9: jobs.trace: '../none.csv' is not valid: expected"
    )


def test_issues_of_several_sections_come_together(folder: Path) -> None:
    text = (
        SCENARIO.replace("column: z", "column: y").replace("steps: 10", "steps: 0").replace("speed", "fast")
    )
    (folder / "scenario.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_scenario(folder / "scenario.yaml")
    assert len(caught.value.issues) == 3


def test_two_jobs_of_one_name_are_refused(folder: Path) -> None:
    job = "  - {name: one, submit: 2h, model: {preset: llama-2-7b}, training: {steps: 10}}\n"
    assert any("every name once" in line for line in broken(folder, job, job * 2))


def test_a_missing_scenario_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a scenario file that can be read"):
        load_scenario(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("mean_gap: 25m", "mean_gap: 0", "a duration above 0"),
        ("arrivals: poisson", "arrivals: all", "all jobs arrive at the start"),
        ("median: 90m", "median: 0s", "a duration above 0"),
        ("stages: 8, tensor: 8", "stages: 41, tensor: 8", "models.1 has 40 layers"),
        ("preset: llama-2-13b", "preset: llama-2-14b", "jobs.generator.models.1.preset"),
        ("count: 40", "count: 0", "jobs.generator.count"),
    ],
)
def test_a_generator_that_cannot_be_meant_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path = tmp_path / "scenario.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_scenario(path)
    assert told in str(caught.value)


def test_the_example_needs_no_outside_file_and_its_prices_average_to_what_it_says() -> None:
    scenario = load_scenario(EXAMPLE)
    means = {
        region: scenario.electricity[region].integral(scenario.start_s, scenario.start_s + 86400)
        / 86400
        * 1000
        for region in scenario.cluster.regions
    }
    assert means == pytest.approx({"eu-west-2": 116.7, "eu-west-3": 104.8, "eu-central-1": 103.0}, abs=0.05)


@pytest.mark.shared_data
def test_the_scenarios_everybody_measures_on_load_as_they_are(data_dir: Path) -> None:
    paths = sorted((data_dir / "scenarios").glob("*.yaml"))
    assert paths
    for path in paths:
        scenario = load_scenario(path)
        assert isinstance(scenario.jobs, TraceFile)
        assert len(scenario.cluster.links) == 132
        assert sum(pool.gpus for pool in scenario.cluster.pools.values()) in (2400, 300)


def test_a_scenario_says_what_it_is_to_be_good_at_and_whose_share_is_what(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, job("a"))
    assert load_scenario(path).objective == Objective()
    told = "objective: {weight_jct: 0.3, cheapest_within: 0.1}\nshares: {nlp: 3, Vision_2: 0.5}\n"
    path.write_text(told + path.read_text())
    scenario = load_scenario(path)
    assert scenario.objective == Objective(0.3, 0.1)
    assert scenario.shares == {"nlp": 3.0, "Vision_2": 0.5}
    path.write_text(path.read_text().replace("nlp: 3", "nlp: 0"))
    with pytest.raises(SpecError, match=r"shares\.nlp"):
        load_scenario(path)
