"""A world that differs from what policies believe: jobs run by the truth, snapshots show the belief."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean

import pytest

from scheduler.evaluate import as_planned, evaluate
from scheduler.placement import Cut, Segment
from scheduler.policies import PolicyConfig
from scheduler.replay.engine import replay
from scheduler.replay.jobs import declared_steps
from scheduler.replay.truth import Truth
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import Scenario
from scheduler.spec.scenario_document import AS_TOLD, StragglersSection, TruthSection
from tests.replay_worlds import job, run

Make = Callable[..., Scenario]
LONG = job("a", steps=60, stages="12..12", elasticity="none")


def placed(scenario: Scenario, bandwidth_bps: float = 10e9):
    spec = jobs_of(scenario)[0].spec
    segments = (Segment("dear", "G", 8, 1), Segment("cheap", "G", 4, 1))
    return spec, evaluate(spec, scenario.cluster, segments, (Cut("dear", "cheap", bandwidth_bps, 0.002),))


def test_as_told_a_job_runs_as_it_was_evaluated(make_scenario: Make) -> None:
    scenario = make_scenario(LONG)
    spec, made = placed(scenario)
    pace = Truth(scenario.cluster, AS_TOLD).pace(spec, 1, made.placement)
    assert (pace.iteration_s, pace.busy_fraction) == (made.iteration_s, made.busy_fraction)


def test_a_job_runs_in_the_window_that_it_was_given(make_scenario: Make) -> None:
    scenario = make_scenario(LONG)
    spec, made = placed(scenario)
    lockstep = replace(made.placement, window=(1,) * 12)
    pace = Truth(scenario.cluster, AS_TOLD).pace(spec, 1, lockstep)
    assert pace.iteration_s > 2 * made.iteration_s
    assert as_planned(spec, scenario.cluster, made.placement) == made


def test_faster_gpus_and_thinner_links_make_the_pace(make_scenario: Make) -> None:
    scenario = make_scenario(LONG)
    spec, made = placed(scenario)
    fast = Truth(scenario.cluster, TruthSection(mfu=2.0)).pace(spec, 1, made.placement)
    assert 0.5 * made.iteration_s < fast.iteration_s < 0.7 * made.iteration_s
    thin = Truth(scenario.cluster, TruthSection(bandwidth=0.1)).pace(spec, 1, made.placement)
    assert thin.iteration_s > made.iteration_s
    _, narrow = placed(scenario, 1e9)
    expected = as_planned(spec, scenario.cluster, replace(made.placement, cuts=narrow.placement.cuts))
    assert thin.iteration_s == expected.iteration_s


def test_stragglers_are_drawn_for_each_generation(make_scenario: Make) -> None:
    scenario = make_scenario(LONG)
    spec, made = placed(scenario)
    truth = Truth(scenario.cluster, TruthSection(stragglers=StragglersSection(share=0.25, slowdown=1.5)))
    paces = [truth.pace(spec, generation, made.placement) for generation in range(1, 401)]
    slow = [pace for pace in paces if pace.iteration_s > made.iteration_s]
    assert len(slow) == pytest.approx(100, abs=30)
    assert {pace.iteration_s for pace in paces} == {made.iteration_s, made.iteration_s * 1.5}
    assert slow[0].busy_fraction[0] == made.busy_fraction[0] / 1.5
    assert truth.pace(spec, 7, made.placement) == truth.pace(spec, 7, made.placement)


def test_policies_see_the_belief_and_jobs_run_by_the_truth(make_scenario: Make) -> None:
    jobs = job("a", steps=600, stages="4..4", elasticity="none") + job("b", "200s", steps=1)
    told = make_scenario(jobs)
    slower = make_scenario(jobs + "truth: {mfu: 0.5}\n")
    assert slower.truth == TruthSection(mfu=0.5)
    assert slower.cluster.gpu_types == told.cluster.gpu_types
    took = [
        next(row for row in run(scenario, "lcf").allocations if row.job_id == "a")
        for scenario in (told, slower)
    ]
    assert took[1].iteration_s == pytest.approx(2 * took[0].iteration_s, rel=0.05)
    assert took[1].end_s == pytest.approx(2 * took[0].end_s, rel=0.05)


def test_thin_links_delay_what_travels(make_scenario: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.restless import Restless, registered

    name = registered(monkeypatch, Restless(move=0.9, preempt=0.0))
    for carried in (1.0, 0.5):
        scenario = make_scenario(
            job("a", steps=2000, stages="4..4", elasticity="restart") + f"truth: {{bandwidth: {carried}}}\n",
            [100.0] * 24 * 30,
        )
        result = replay(scenario, jobs_of(scenario), PolicyConfig(name=name, seed=2))
        sent = [row for row in result.links if row.use == "state" and row.bytes > 1e9]
        assert sent
        for row in sent:
            generation = next(
                each
                for each in result.allocations
                if (each.job_id, each.generation) == (row.job_id, row.generation)
            )
            if row.end_s < generation.end_s:
                travelled_s = row.end_s - row.start_s - 60
                assert travelled_s == pytest.approx(row.bytes * 8 / (row.reserved_bps * carried))


def test_a_bias_shifts_what_jobs_declare() -> None:
    told = [declared_steps(1000, str(index), 0.3, 1, bias=2.0) for index in range(200)]
    plain = [declared_steps(1000, str(index), 0.3, 1) for index in range(200)]
    assert mean(two / one for two, one in zip(told, plain, strict=True)) == pytest.approx(2.0, rel=1e-3)
    assert declared_steps(1000, "a", 0.0, 1, bias=0.5) == 500
