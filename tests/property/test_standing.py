"""A queue that stands decides as one that is looked at anew each time."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.cluster import Cluster
from scheduler.plan import Reject, Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.policies.queueing import QueuePolicy
from scheduler.policies.standing import StandingQueue
from scheduler.price import PriceSeries
from scheduler.replay.engine import replay
from scheduler.replay.records import ReplayResult
from scheduler.replay.workload import jobs_of
from scheduler.snapshot import RunningJob, Snapshot, StateSpan, WaitingJob
from scheduler.spec.scenario import Scenario, load_scenario
from tests.replay_worlds import job as listed
from tests.replay_worlds import watched, write_scenario
from tests.worlds import BIG, GPU, both_ways, cluster, job, region, runs

QUEUEING = {name: policy for name, policy in POLICIES.items() if isinstance(policy, QueuePolicy)}
THREE_REGIONS = Path(__file__).parents[2] / "deploy/examples/scenarios/three-regions.yaml"


def world(dice: random.Random) -> Cluster:
    names = "abcd"
    width = dice.choice([8.0, 20.0, 40.0])
    links = both_ways(*((a, b, dice.uniform(4, width)) for a in names for b in names if a < b))
    pools = {name: {"g": dice.randint(0, 6), "big": dice.choice([0, 0, 3])} for name in names}
    return cluster(pools, links, [region(name, up=dice.uniform(5, 2 * width)) for name in names], (GPU, BIG))


def arriving(dice: random.Random, number: int) -> WaitingJob:
    """Of few kinds, so that several jobs have one demand; sometimes one that ran before."""
    stages = dice.choice([(None, None), (2, 4), (1, 1), (5, 8), (30, 30)])
    made = job(
        f"j{number:03d}",
        layers=40 if stages[0] == 30 else 8,
        seconds={"g": 8.0, "big": 8.0},
        activation_bits=dice.choice([2.0, 8.0]),
        stages=stages,
        steps=dice.choice([3, 10, 10, 50]),
        priority=dice.choice([50, 50, 50, 90]),
        submit_s=float(number // 2),
        weight_bytes=40.0,
    )
    if dice.random() < 0.2:
        state = (StateSpan(dice.choice("abcd"), made.spec.model.layers),)
        made = replace(made, generation=2, state=state, avoid_regions=frozenset(dice.choice(["", "a", "bc"])))
    return made


def sees(
    cluster_: Cluster,
    prices: dict[str, float],
    waiting: dict[str, WaitingJob],
    running: dict[str, RunningJob],
):
    known = {name: PriceSeries.flat(value).known(0.0) for name, value in prices.items()}
    return Snapshot(1, 0.0, cluster_, known, tuple(waiting.values()), tuple(running.values()))


@pytest.mark.parametrize("name", QUEUEING)
@pytest.mark.parametrize("seed", range(12))
def test_at_every_event_the_same_start_and_the_same_are_refused(name: str, seed: int) -> None:
    dice = random.Random(seed)
    here = world(dice)
    prices = {each: dice.uniform(0.05, 0.3) for each in here.regions if dice.random() < 0.9}
    waiting: dict[str, WaitingJob] = {}
    running: dict[str, RunningJob] = {}
    queue = StandingQueue(QUEUEING[name], 0, sees(here, prices, {}, {}))
    started = 0
    for number in range(60):
        fate = dice.choice(["arrives", "arrives", "ends", "ends", "changes", "price", "nothing"])
        if fate == "arrives":
            made = arriving(dice, number)
            waiting[made.spec.job_id] = made
            queue.add(made)
        elif fate == "ends" and running:
            gone = running.pop(dice.choice(sorted(running)))
            queue.give_back(gone.allocation.placement, gone.transfers)
        elif fate == "changes" and waiting:
            again = replace(waiting[dice.choice(sorted(waiting))], avoid_regions=frozenset())
            waiting[again.spec.job_id] = again
            queue.add(again)
        elif fate == "price":
            prices = {each: dice.uniform(0.05, 0.3) for each in prices}
            queue.reprice(sees(here, prices, {}, {}))
        snapshot = sees(here, prices, waiting, running)
        whole = [
            each
            for each in decide(snapshot, PolicyConfig(name)).decisions
            if isinstance(each, Start | Reject)
        ]
        ours = queue.decide()
        assert [each for each in ours if isinstance(each, Start)] == [
            each for each in whole if isinstance(each, Start)
        ], number
        assert {each for each in ours if isinstance(each, Reject)} == {
            each for each in whole if isinstance(each, Reject)
        }
        for each in ours:
            left = waiting.pop(each.job_id)
            if isinstance(each, Start):
                started += 1
                running[each.job_id] = replace(runs(left, each.placement), transfers=each.transfers)
    assert started > 2


def rows(result: ReplayResult) -> tuple[object, ...]:
    return (
        result.jobs,
        result.allocations,
        result.links,
        result.rejections,
        len(result.decisions.durations_s),
    )


def both(scenario: Scenario, name: str) -> tuple[ReplayResult, ReplayResult]:
    """A replay that tells the policy what changes, and one that shows it everything each time."""
    jobs = jobs_of(scenario)
    standing = replay(scenario, jobs, PolicyConfig(name=name))
    with pytest.MonkeyPatch.context() as patch:
        seen = watched(patch, name)
        whole = replay(scenario, jobs, PolicyConfig(name=name))
    assert len(seen) == len(whole.decisions.durations_s)
    return standing, whole


@pytest.mark.parametrize("name", QUEUEING)
def test_a_replay_is_the_same_either_way(name: str) -> None:
    standing, whole = both(load_scenario(THREE_REGIONS), name)
    assert rows(standing) == rows(whole)


@pytest.mark.parametrize("name", QUEUEING)
def test_a_replay_with_faults_is_the_same_either_way(name: str, tmp_path: Path) -> None:
    dice = random.Random(name)
    jobs = "".join(
        listed(
            f"j{index}",
            f"{dice.randint(0, 9000)}s",
            dice.randint(20, 1500),
            stages=dice.choice(["auto", "4..8", "2..3", "20..24"]),
            preset="gpt-3-1.3b",
            elasticity=dice.choice(["resize", "none"]),
        )
        for index in range(25)
    )
    faults = "faults: {generator: {mean_between: 90m, mean_repair: 20m}, seed: 3, cool_down: 15m}\n"
    path = write_scenario(tmp_path, jobs + faults, [100.0, -50.0, 200.0] * 200)
    standing, whole = both(load_scenario(path), name)
    assert rows(standing) == rows(whole)
    assert sum(row.faults for row in whole.jobs) > 0


@pytest.mark.shared_data
@pytest.mark.parametrize("name", QUEUEING)
def test_a_replay_of_the_kalos_trace_is_the_same_either_way(name: str, data_dir: Path) -> None:
    standing, whole = both(load_scenario(data_dir / "scenarios/real12-kalos-x10.yaml"), name)
    assert rows(standing) == rows(whole)
