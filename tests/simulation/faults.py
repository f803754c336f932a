"""What goes wrong, when: one class of faults, one stream of random numbers, one task.

A class draws its moments and victims from its own stream, so that leaving a class out leaves the others as they are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

Fault = Callable[["World", random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FaultClass:
    """`strike` once every `every_s` on average; `begin` once, at the beginning."""

    name: str
    every_s: float
    strike: Fault


async def replica_crash(world: World, dice: random.Random) -> None:
    replica = dice.choice(world.replicas)
    if replica.is_alive:
        world.trace.fault("replica-crash", replica.name)
        replica.crash()
        await asyncio.sleep(dice.uniform(0.5, 3 * world.settings.leader_lease_s))
        world.start_replica(replica)


async def replica_pause(world: World, dice: random.Random) -> None:
    """Longer than the leader's lease, mostly."""
    replica = dice.choice(world.replicas)
    if replica.is_alive and replica.gate.is_open:
        world.trace.fault("replica-pause", replica.name)
        stopped_s = dice.uniform(0.5, 2.5) * world.settings.leader_lease_s
        moment = dice.choice(("now", "while it plans", "before it applies"))
        if moment == "while it plans":
            replica.compute.stops_for_s = stopped_s
            return
        if moment == "before it applies":
            replica.stop_with_its_plan(stopped_s)
            return
        replica.gate.close()
        await asyncio.sleep(stopped_s)
        replica.gate.open()


async def replica_without_database(world: World, dice: random.Random) -> None:
    replica = dice.choice(world.replicas)
    if replica.is_alive:
        world.trace.fault("database-unreachable", replica.name)
        replica.is_cut_off = True
        await asyncio.sleep(dice.uniform(1.0, 2 * world.settings.leader_lease_s))
        replica.is_cut_off = False


async def partition(world: World, dice: random.Random) -> None:
    """Some agents and perhaps a client, in one direction or both; for a moment, or beyond the lease."""
    names = [agent.host.name for agent in world.agents]
    victims = dice.sample(names, dice.randint(1, max(1, len(names) // 4)))
    if dice.random() < 0.3:
        victims.append(dice.choice(world.client_names))
    direction = dice.choice(("both", "to-server", "from-server"))
    world.trace.fault(f"partition-{direction}", " ".join(victims))
    cuts = world.network.cuts
    sides = [cuts.to_server] * (direction != "from-server") + [cuts.from_server] * (direction != "to-server")
    for side in sides:
        side.update(victims)
    await asyncio.sleep(_as_long_as_a_lease(world, dice))
    for side in sides:
        side.difference_update(victims)


async def swizzle(world: World, dice: random.Random) -> None:
    """Agents are cut off one after the other, and come back in another order."""
    victims = dice.sample(
        [agent.host.name for agent in world.agents], dice.randint(2, max(2, len(world.agents) // 3))
    )
    world.trace.fault("swizzle", " ".join(victims))
    for name in victims:
        world.network.cuts.to_server.add(name)
        await asyncio.sleep(dice.expovariate(1 / 2.0))
    dice.shuffle(victims)
    for name in victims:
        await asyncio.sleep(dice.expovariate(1 / 4.0))
        world.network.cuts.to_server.discard(name)


async def agent_crash(world: World, dice: random.Random) -> None:
    agent = dice.choice(world.agents)
    world.trace.fault("agent-crash", agent.host.name)
    agent.kill(stays_down_s=dice.choice((0.0, _as_long_as_a_lease(world, dice))))


async def agent_torn(world: World, dice: random.Random) -> None:
    """The agent dies in the middle of a write of its journal, or around the start of a worker."""
    agent = dice.choice(world.agents)
    world.trace.fault("agent-torn", agent.host.name)
    if dice.random() < 0.5:
        agent.host.disk.cut_in_writes = dice.randint(1, 4)
    else:
        agent.host.dies_at_start = dice.choice(("before", "after"))


async def machine_crash(world: World, dice: random.Random) -> None:
    agent = dice.choice(world.agents)
    world.trace.fault("machine-crash", agent.host.name)
    agent.kill(with_machine=True, stays_down_s=dice.choice((0.0, _as_long_as_a_lease(world, dice))))


async def agent_revoked(world: World, dice: random.Random) -> None:
    """Somebody takes an agent for stolen."""
    agent = dice.choice(world.agents)
    world.trace.fault("agent-revoked", agent.host.name)
    await world.caretaker.revoke(agent)


async def agent_pause(world: World, dice: random.Random) -> None:
    """The daemon alone is stopped: its supervisors go on."""
    agent = dice.choice(world.agents)
    if agent.gate.is_open:
        world.trace.fault("agent-pause", agent.host.name)
        agent.gate.close()
        await asyncio.sleep(_as_long_as_a_lease(world, dice))
        agent.gate.open()


async def worker_killed(world: World, dice: random.Random) -> None:
    alive = [worker for agent in world.agents for worker in agent.host.alive.values()]
    if alive:
        worker = dice.choice(alive)
        world.trace.fault("worker-killed", worker.key)
        worker.exit(-9)


async def clock_step(world: World, dice: random.Random) -> None:
    """An agent's wall clock is set anew, minutes off and perhaps back."""
    clock = dice.choice(world.agents).host.clock
    world.trace.fault("clock-step")
    clock.skew_s = dice.uniform(-150.0, 150.0)


async def machine_full(world: World, dice: random.Random) -> None:
    disk = dice.choice(world.agents).host.disk
    world.trace.fault("agent-disk-full")
    disk.is_full = True
    await asyncio.sleep(_as_long_as_a_lease(world, dice))
    disk.is_full = False


async def start_failure(world: World, dice: random.Random) -> None:
    """For a while no worker can be started there: the gang must let its other stages go."""
    host = dice.choice(world.agents).host
    world.trace.fault("cannot-start", host.name)
    host.cannot_start = True
    await asyncio.sleep(dice.uniform(5.0, 40.0))
    host.cannot_start = False


async def database_busy(world: World, dice: random.Random) -> None:
    world.database.is_busy = True
    await asyncio.sleep(dice.uniform(0.5, 6.0))
    world.database.is_busy = False


async def database_full(world: World, dice: random.Random) -> None:
    world.database.is_full = True
    await asyncio.sleep(dice.uniform(0.5, 8.0))
    world.database.is_full = False


async def database_loses_answers(world: World, dice: random.Random) -> None:
    world.database.loses_answers = True
    await asyncio.sleep(dice.uniform(1.0, 15.0))
    world.database.loses_answers = False


async def redis_gone(world: World, dice: random.Random) -> None:
    world.trace.fault("redis-gone")
    world.redis.is_gone = True
    await asyncio.sleep(dice.uniform(5.0, 60.0))
    world.redis.is_gone = False


async def prices_stale(world: World, dice: random.Random) -> None:
    world.trace.fault("prices-stale")
    world.feed.is_stale = True
    await asyncio.sleep(dice.uniform(20.0, 120.0))
    world.feed.is_stale = False


async def bad_weather(world: World, dice: random.Random) -> None:
    """A stretch in which a kind of network fault is much likelier than usual."""
    kind = dice.choice([kind for kind in WEATHER if kind in world.faults] or [None])
    if kind is not None:
        setattr(world.network.weather, kind, dice.uniform(0.05, 0.3))
        await asyncio.sleep(dice.uniform(5.0, 30.0))
        setattr(world.network.weather, kind, WEATHER[kind])


def _as_long_as_a_lease(world: World, dice: random.Random) -> float:
    """Shorter than a lease, about a lease, or beyond what makes a node lost."""
    longest_s = dice.choice(
        (0.7 * world.settings.lease_s, 1.5 * world.settings.lease_s, 1.5 * world.settings.node_lost_after_s)
    )
    return dice.uniform(1.0, longest_s)


WEATHER = {"drop": 0.01, "delay": 0.02, "duplicate": 0.02, "reorder": 0.005}
"""Faults of single requests, and how often they happen in ordinary times."""
CLASSES: Sequence[FaultClass] = (
    FaultClass("weather", 30.0, bad_weather),
    FaultClass("replica-crash", 50.0, replica_crash),
    FaultClass("replica-pause", 40.0, replica_pause),
    FaultClass("database-unreachable", 90.0, replica_without_database),
    FaultClass("partition", 25.0, partition),
    FaultClass("swizzle", 90.0, swizzle),
    FaultClass("agent-crash", 30.0, agent_crash),
    FaultClass("agent-torn", 25.0, agent_torn),
    FaultClass("machine-crash", 70.0, machine_crash),
    FaultClass("agent-pause", 40.0, agent_pause),
    FaultClass("agent-revoked", 80.0, agent_revoked),
    FaultClass("worker-killed", 60.0, worker_killed),
    FaultClass("clock-step", 30.0, clock_step),
    FaultClass("agent-disk-full", 80.0, machine_full),
    FaultClass("cannot-start", 60.0, start_failure),
    FaultClass("database-busy", 60.0, database_busy),
    FaultClass("database-full", 120.0, database_full),
    FaultClass("answer-lost", 50.0, database_loses_answers),
    FaultClass("redis-gone", 90.0, redis_gone),
    FaultClass("prices-stale", 120.0, prices_stale),
)
KINDS = (*WEATHER, *(each.name for each in CLASSES))
"""Everything that can be left out."""
