"""Clients that follow the stream of events, break off, and go on: each sees every event once, in order."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.simulation.clients import URL
from tests.simulation.network import Network
from tests.simulation.trace import Trace

EVERYBODYS = "*"
CAUGHT_UP_WITHIN_S = 120.0


@dataclass
class Watcher:
    """Follows `/v1/events` with a token: of everything, or of one project and what all share."""

    name: str
    token: str
    project: str | None
    network: Network
    trace: Trace
    dice: random.Random
    seen: list[int] = field(default_factory=list)
    told: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Number → kind and object, as they were told."""

    async def run(self) -> None:
        """From one stream to the next."""
        while True:
            await self._follow(self.dice.expovariate(1.0 / 30.0))
            await asyncio.sleep(self.dice.uniform(0.1, 5.0))

    async def missed(self, driver: sqlite3.Connection) -> list[str]:
        """What is wrong with what it has seen, once it has had the time to see all that there is."""
        last = driver.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
        loop = asyncio.get_running_loop()
        end_s = loop.time() + CAUGHT_UP_WITHIN_S
        expected = self._due(driver, last)
        while expected and (not self.seen or self.seen[-1] < max(expected)) and loop.time() < end_s:
            await self._follow(5.0)
        seen = [seq for seq in self.seen if seq <= last]
        if seen != sorted(expected):
            odd = sorted(set(seen) ^ expected.keys())[:5]
            return [f"{self.name} has seen {len(seen)} events of {len(expected)}; {odd} differ"]
        return [
            f"{self.name} was told of event {seq}: {self.told[seq]}, it is {expected[seq]}"
            for seq in seen
            if self.told[seq] != expected[seq]
        ]

    def _due(self, driver: sqlite3.Connection, last: int) -> dict[int, tuple[str, str]]:
        """Number → kind and object of every event that it may see: its project's, and of what all share the cluster."""
        rows = driver.execute(
            "SELECT seq, kind, object_id FROM events WHERE seq <= ?1 AND (?2 IS NULL OR project = ?2 "
            "OR (project = ?3 AND object_kind NOT IN ('account', 'token')))",
            (last, self.project, EVERYBODYS),
        )
        return {seq: (kind, object_id) for seq, kind, object_id in rows}

    async def _follow(self, seconds: float) -> None:
        """One stream, until it ends, the network breaks, or it has had enough."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        if self.seen:
            headers["Last-Event-ID"] = str(self.seen[-1])
            self.trace.sometimes("a stream went on where it was broken off")
        try:
            stream = await self.network.open(
                self.name, httpx.Request("GET", URL + "/v1/events", headers=headers)
            )
        except httpx.TransportError:
            return
        try:
            async with asyncio.timeout(seconds):
                while (part := await stream.parts.get()) is not None and self.network.carries(self.name):
                    self._take(part)
        except TimeoutError:
            return
        finally:
            stream.leave()

    def _take(self, part: bytes) -> None:
        """A message; comments and the end of a stream by an error tell of no event."""
        fields = dict(
            line.split(": ", 1) for line in part.decode().splitlines() if ": " in line and line[0] != ":"
        )
        if fields.get("event") in (None, "error"):
            return
        document: dict[str, Any] = json.loads(fields["data"])
        seq = int(fields["id"])
        if self.seen and seq <= self.seen[-1]:
            self.trace.violation(
                "a stream tells of every event once", f"{self.name}: {seq} after {self.seen[-1]}"
            )
        self.seen.append(seq)
        self.told[seq] = (str(document["kind"]), str(document["object_id"]))
