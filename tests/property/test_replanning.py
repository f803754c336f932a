"""What must hold for every policy on a busy cluster, where jobs run, restart, stop and wait with their state."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from scheduler.check import check_plan
from scheduler.plan import Hold, Move, Plan, Preempt, Start
from scheduler.policies import POLICIES, VARIANTS, PolicyConfig, decide
from scheduler.replay.engine import replay
from scheduler.replay.workload import jobs_of
from scheduler.snapshot import Snapshot
from scheduler.spec.scenario import load_scenario
from tests.busy_worlds import busy, shuffled
from tests.replay_worlds import job, write_scenario

REPLANNING = [name for name, policy in POLICIES.items() if policy.replans]
SEEDS = range(60)
VARIANTS_SKIP = 6
"""Variants see one world in so many: there are many of them, and all share horizon's code."""


@cache
def world(seed: int) -> Snapshot:
    return busy(seed)


CONFIGS = [
    *(PolicyConfig(name) for name in POLICIES),
    *(PolicyConfig("horizon", variant=variant) for variant in VARIANTS),
]


def named(config: PolicyConfig) -> str:
    return f"{config.name}:{config.variant}".removesuffix(":")


def told(plan: Plan) -> list[tuple[str, str, object]]:
    """What a plan does, without words."""
    return [
        (
            type(each).__name__,
            each.job_id,
            (each.placement, each.transfers) if isinstance(each, Start | Move) else (),
        )
        for each in plan.decisions
    ]


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_no_plan_breaks_a_rule(config: PolicyConfig) -> None:
    for seed in SEEDS[:: VARIANTS_SKIP if config.variant else 1]:
        plan = decide(world(seed), config)
        assert check_plan(world(seed), plan) == (), seed
        held = [each.position for each in plan.decisions if isinstance(each, Hold)]
        assert held == list(range(1, len(held) + 1)), seed


@pytest.mark.parametrize("name", REPLANNING)
def test_running_jobs_are_moved_and_preempted_and_waiting_ones_started_with_their_state(name: str) -> None:
    """Else the test above would promise little."""
    kinds: Counter[type] = Counter()
    travelling = 0
    for seed in SEEDS:
        plan = decide(world(seed), PolicyConfig(name))
        kinds.update(type(each) for each in plan.decisions)
        travelling += sum(bool(each.transfers) for each in (*plan.starts, *plan.moves))
    assert min(kinds[Move], kinds[Preempt], kinds[Start], kinds[Hold], travelling) > 0, kinds


@pytest.mark.parametrize("name", POLICIES)
def test_the_order_in_which_things_are_listed_changes_nothing(name: str) -> None:
    dice = random.Random(name)
    for seed in SEEDS:
        assert decide(shuffled(world(seed), dice), PolicyConfig(name)) == decide(
            world(seed), PolicyConfig(name)
        ), seed


@pytest.mark.parametrize("name", POLICIES)
def test_other_names_for_regions_change_nothing_but_the_names(name: str) -> None:
    """The new ones sort as the old ones did: names still break ties."""
    for seed in SEEDS:
        fresh = dict(zip("abcde", sorted(random.Random(seed).sample("klmnopqrstuvwxyz", 5)), strict=True))
        other = busy(seed, fresh.__getitem__)
        plain, renamed = decide(world(seed), PolicyConfig(name)), decide(other, PolicyConfig(name))
        assert [_renamed(each, fresh) for each in told(plain)] == [
            _renamed(each, {}) for each in told(renamed)
        ], seed


def _renamed(what: tuple[str, str, object], names: dict[str, str]) -> tuple[str, str, str]:
    text = repr(what[2])
    for old, new in names.items():
        text = text.replace(f"'{old}'", f"'{new}'")
    return what[0], what[1], text


@pytest.mark.parametrize("name", REPLANNING)
def test_a_plan_is_the_same_a_second_time(name: str) -> None:
    for seed in SEEDS[:15]:
        assert decide(busy(seed), PolicyConfig(name)) == decide(busy(seed), PolicyConfig(name)), seed


@pytest.mark.parametrize("name", [*REPLANNING, "easy"])
def test_a_replay_in_which_nodes_fail_comes_to_its_end_by_legal_plans(name: str, tmp_path: Path) -> None:
    dice = random.Random(5)
    jobs = "".join(
        job(
            f"j{index}",
            f"{dice.randint(0, 9000)}s",
            dice.randint(20, 1500),
            stages=dice.choice(["auto", "4..8", "2..3"]),
            preset="gpt-3-1.3b",
            elasticity=dice.choice(["resize", "resize", "restart", "none"]),
        )
        for index in range(25)
    )
    faults = "faults: {generator: {mean_between: 90m, mean_repair: 20m}, seed: 3, cool_down: 15m}\n"
    scenario = load_scenario(write_scenario(tmp_path, jobs + faults, [100.0, -50.0, 200.0] * 200))
    result = replay(scenario, jobs_of(scenario), PolicyConfig(name=name))
    assert {row.state for row in result.jobs} == {"succeeded"}
    assert sum(row.faults for row in result.jobs) > 0
