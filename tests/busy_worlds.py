"""Snapshots of a busy cluster, drawn from dice: jobs that run, restart and stop, others that wait with their state."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from scheduler.cluster import Cluster, Link, Pool, Region
from scheduler.job import Elasticity, PlacementRule, Schedule
from scheduler.network import Residual
from scheduler.placement import Allocation
from scheduler.plan import Start
from scheduler.policies import PolicyConfig, decide
from scheduler.price import PriceSeries
from scheduler.restart import granted_transfers, state_of
from scheduler.snapshot import Promise, RunningJob, Snapshot, StateSpan, WaitingJob
from tests.worlds import BIG, GPU, SLOW, job

NOW_S = 900_000.0
Rename = Callable[[str], str]
ALIKE = str
"""A renaming that changes no name."""


def busy(seed: int, rename: Rename = ALIKE) -> Snapshot:
    """The snapshot of a seed; `rename` gives its regions other names."""
    dice = random.Random(seed)
    world = _cluster(dice, rename)
    names = [rename(name) for name in "abcde"]
    prices = {name: _prices(dice) for name in names if dice.random() < 0.9}
    quiet = Snapshot(1, NOW_S, world, {name: series.known(NOW_S) for name, series in prices.items()})
    early = [_job(dice, f"r{number}", rename) for number in range(dice.randint(0, 5))]
    running = [
        _running(dice, quiet, each, start)
        for start in decide(replace(quiet, waiting=tuple(early)), PolicyConfig()).starts
        for each in early
        if each.spec.job_id == start.job_id
    ]
    snapshot = replace(quiet, running=tuple(running))
    snapshot = replace(snapshot, promised=_promised(dice, snapshot))
    waiting = [
        _waiting(dice, _job(dice, f"w{number}", rename), names) for number in range(dice.randint(0, 5))
    ]
    recent = tuple(_job(dice, f"e{number}", rename).spec for number in range(dice.randint(0, 2)))
    return replace(snapshot, waiting=tuple(waiting), recent=recent)


def shuffled(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """The same with everything listed in another order."""

    def mixed(items):
        items = list(items)
        dice.shuffle(items)
        return items

    world = snapshot.cluster
    return replace(
        snapshot,
        cluster=replace(
            world,
            gpu_types=dict(mixed(world.gpu_types.items())),
            regions=dict(mixed(world.regions.items())),
            pools=dict(mixed(world.pools.items())),
            links=dict(mixed(world.links.items())),
        ),
        electricity=dict(mixed(snapshot.electricity.items())),
        waiting=tuple(mixed(snapshot.waiting)),
        running=tuple(mixed(snapshot.running)),
        promised=tuple(mixed(snapshot.promised)),
    )


def _cluster(dice: random.Random, rename: Rename) -> Cluster:
    names = [rename(name) for name in "abcde"]
    kinds = dice.choice([(GPU,), (GPU,), (GPU, BIG), (GPU, BIG, SLOW)])
    access = [dice.uniform(20, 60) if dice.random() < 0.5 else math.inf for _ in names]
    regions = {
        name: Region(name, dice.uniform(1, 1.5), width, width)
        for name, width in zip(names, access, strict=True)
    }
    sizes = {kind.name: dice.sample(range(1, 9), len(names)) for kind in kinds}
    pools = {
        (name, kind.name): Pool(name, kind.name, sizes[kind.name][index])
        for index, name in enumerate(names)
        for kind in kinds
    }
    width = dice.choice([20.0, 60.0, 1e4])
    links = {
        (a, b): Link(a, b, dice.uniform(width / 4, width), dice.uniform(0.001, 0.1), dice.uniform(0, 1e5))
        for a in names
        for b in names
        if a != b and dice.random() < 0.9
    }
    return Cluster({kind.name: kind for kind in kinds}, regions, pools, links)


def _prices(dice: random.Random) -> PriceSeries:
    """Ten days of hours, published when they are past or a day before."""
    start_s, ahead_s = NOW_S - 8 * 86400, dice.choice([0.0, 86400.0])
    times = tuple(start_s + 3600.0 * hour for hour in range(240))
    values = tuple(dice.uniform(-0.05, 0.3) for _ in times)
    return PriceSeries(times, values, tuple(time - ahead_s for time in times), times[-1] + 3600.0)


def _job(dice: random.Random, job_id: str, rename: Rename) -> WaitingJob:
    layers = dice.choice([4, 8, 24])
    least = dice.choice([None, None, 1, 2, 4])
    seconds = dice.uniform(2, 20)
    steps = round(10 ** dice.uniform(0.5, 4))
    rule = PlacementRule(
        regions=dice.choice([(), (), (), tuple(map(rename, "abd"))]),
        max_regions=dice.choice([None, None, None, 1, 2]),
    )
    made = job(
        job_id,
        layers=layers,
        seconds={"g": seconds, "big": seconds * dice.uniform(0.5, 2), "slow": seconds * 3},
        activation_bits=dice.uniform(1, 30),
        weight_bytes=dice.choice([8.0, 200.0, 400.0]) * dice.uniform(0.9, 1),
        inflight_bytes=dice.choice([0.0, 30.0]),
        micro_batches=dice.choice([2, 8, 32]),
        steps=steps,
        stages=(least, dice.choice([None, None, layers])),
        named=dice.choice([None, 2, 4]),
        tensor=dice.choice([1, 1, 1, 2]),
        placement=rule,
        priority=dice.choice([50, 50, 50, 90]),
        submit_s=NOW_S - dice.uniform(0, 86400),
        schedule=dice.choice(
            [Schedule.SLACK_1F1B, Schedule.SLACK_1F1B, Schedule.ONE_F_ONE_B, Schedule.GPIPE]
        ),
    )
    elasticity = dice.choice([Elasticity.RESIZE, Elasticity.RESIZE, Elasticity.RESTART, Elasticity.NONE])
    return replace(made, spec=replace(made.spec, elasticity=elasticity))


def _waiting(dice: random.Random, fresh: WaitingJob, names: list[str]) -> WaitingJob:
    """Some have run before: their state lies somewhere, and some have to go on with the stages that they had."""
    if dice.random() < 0.5:
        return fresh
    layers = fresh.spec.model.layers
    first = dice.randint(1, layers)
    ends = dice.sample(names, 2)
    spans = [StateSpan(ends[0], first), StateSpan(ends[1], layers - first)]
    keeps = fresh.spec.elasticity is not Elasticity.RESIZE
    return replace(
        fresh,
        generation=2,
        remaining_steps=dice.randint(1, fresh.spec.training.steps),
        state=tuple(span for span in spans if span.layers),
        stages=max(fresh.spec.parallelism.stages_min or 1, dice.randint(1, 4)) if keeps else None,
        waits_since_s=NOW_S - dice.uniform(0, 7200),
        avoid_regions=frozenset(dice.sample(names, dice.choice([0, 0, 1]))),
    )


def _running(dice: random.Random, quiet: Snapshot, waiting: WaitingJob, start: Start) -> RunningJob:
    """A job on its placement: for a while, just begun, or on its way there; sometimes it is stopping."""
    phase = dice.choice(["first", "steps", "steps", "fresh", "restarting"])
    since_s = NOW_S - (
        dice.uniform(1, 200) if phase in ("fresh", "restarting") else dice.uniform(400, 40_000)
    )
    ready_s = {"first": None, "restarting": NOW_S + dice.uniform(1, 900)}.get(phase, since_s)
    generation = 1 if phase == "first" else 2
    spec = waiting.spec
    allocation = Allocation(f"{spec.job_id}/{generation}", spec.job_id, generation, start.placement, since_s)
    held = RunningJob(spec, allocation, dice.randint(1, spec.training.steps), ready_s)
    if phase == "restarting":
        held = replace(held, state=state_of(spec, start.placement))
    stops = phase != "restarting" and spec.elasticity is not Elasticity.NONE and dice.random() < 0.2
    return replace(held, stopping=stops)


def _promised(dice: random.Random, snapshot: Snapshot) -> tuple[Promise, ...]:
    """One of those who stop goes on elsewhere, on what is left once all of them have stopped."""
    stopping = [each for each in snapshot.running if each.stopping]
    if not stopping or dice.random() < 0.3:
        return ()
    moved = stopping[0]
    keeps = None if moved.spec.elasticity is Elasticity.RESIZE else moved.allocation.placement.stages
    again = WaitingJob(moved.spec, moved.remaining_steps, 3, stages=keeps)
    rest = tuple(each for each in snapshot.running if not each.stopping)
    starts = decide(replace(snapshot, running=rest, waiting=(again,)), PolicyConfig()).starts
    residual = Residual.of(replace(snapshot, running=rest))
    state = state_of(moved.spec, moved.allocation.placement)
    return tuple(
        Promise(moved.spec, start.placement, moved.remaining_steps, 3, transfers)
        for start in starts
        if (transfers := granted_transfers(moved.spec, state, start.placement, residual)) is not None
    )
