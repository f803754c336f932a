"""What agents are given to show: an operator hands it out and takes it back, a thief tries what copies of it open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.clients import Caller
from tests.simulation.clocks import START_S
from tests.simulation.door import BEAT, JOIN

if TYPE_CHECKING:
    from tests.simulation.agent import SimulatedAgent


HELPS_WITHIN_S = 90.0
"""An agent first shows what it had, and tries what it was given when it calls again."""


@dataclass
class Caretaker:
    """Gives an agent that is refused a new token to join with, and revokes one now and then."""

    caller: Caller
    agents: Sequence[SimulatedAgent]
    dice: random.Random
    lifetime_s: float = 3600.0
    helped_at_s: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks at all agents again and again."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.dice.uniform(5.0, 15.0))
            for agent in self.agents:
                since_s = loop.time() - self.helped_at_s.get(agent.host.name, -HELPS_WITHIN_S)
                if agent.was_refused and since_s >= HELPS_WITHIN_S:
                    self.helped_at_s[agent.host.name] = loop.time()
                    # As it is told: what the agent joined with before, and has lost, would keep it out.
                    await self.revoke(agent)
                    agent.given = await self.token(agent.host.name)
                    agent.was_refused = False
                    agent.kill()

    async def token(self, name: str) -> str:
        """One that lets one agent join, once."""
        body = {"name": f"for {name}", "expires_in_s": self.lifetime_s}
        answer = await self.caller.insist("POST", "/v1/join-tokens", body)
        return "" if answer is None or answer.status_code != 201 else str(answer.json()["token"])

    async def revoke(self, agent: SimulatedAgent) -> None:
        await self.caller.insist("POST", f"/v1/nodes/{agent.host.name}/revoke")


@dataclass
class Thief:
    """Has copies of secrets, of now and of long ago, and tries what may be had with them."""

    caller: Caller
    agents: Sequence[SimulatedAgent]
    every_s: float
    dice: random.Random
    loot: list[tuple[str, str]] = field(default_factory=list)
    """Secrets, and the agents that they were stolen from."""

    async def run(self) -> None:
        """Steal, and try."""
        while True:
            await asyncio.sleep(self.dice.expovariate(1.0 / self.every_s))
            victim = self.dice.choice(self.agents)
            identity = victim.host.disk.identity
            if identity is not None:  # its token has been used, then
                self.loot += [(identity.token, victim.host.name), (victim.given, victim.host.name)]
            if self.loot:
                await self._try(*self.dice.choice(self.loot))

    async def _try(self, secret: str, owner: str) -> None:
        """To speak for another agent, of another's processes, for another's node, or as a node of its own."""
        dice = self.dice
        other = dice.choice([agent for agent in self.agents if agent.host.name != owner])
        deed = dice.choice(("speak for another", "end another's processes", "take a node", "join as another"))
        now_s = START_S + asyncio.get_running_loop().time()
        keys = sorted(other.host.alive)
        beat: dict[str, Any] = {
            "agent_id": f"agent-{owner}",
            # Another life each time, and long ago: it must not look like the next word of the agent that it was stolen
            # from. Whoever holds a good secret and is taken for its agent may be given the next one.
            "boot_id": f"thief-{int(now_s * 1000.0)}",
            "clock_s": now_s - 3600.0,
            "processes": [{"key": key, "state": "exited", "exit_code": 0} for key in keys],
        }
        headers = {"Authorization": f"Bearer {secret}"}
        if deed in ("take a node", "join as another"):
            agent_id = f"agent-{owner}" if deed == "take a node" else "agent-thief"
            node_id = other.host.name if deed == "take a node" else "node-thief"
            offer = other.offer().model_copy(update={"node_id": node_id}).model_dump(mode="json")
            body = {"agent_id": agent_id, "nodes": [offer], "agent_version": "0", "clock_s": now_s}
            await self.caller.call("POST", JOIN, body, headers)
            return
        if deed == "speak for another":
            beat["agent_id"] = f"agent-{other.host.name}"
        await self.caller.call("POST", BEAT, beat, headers)
