"""Who uses the service: submitters that try again, people who change their minds, an operator, a price feed.

Every answer is remembered: what was acknowledged must be there in the end, once.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.simulation.network import Network
from tests.simulation.trace import Trace

URL = "http://bace.simulated"
TRIES = 40
HUGE = "huge"
"""A job that can never fit."""
KINDS = (*["trains"] * 7, "stubborn", "fails", "out-of-memory")
"""How a job will behave, by the first word of its name."""


@dataclass(slots=True)
class Submission:
    """What a client asked for, and what it was told."""

    name: str
    kind: str
    key: str
    job_id: str | None = None
    cancel_asked: bool = False
    cancelled: bool = False
    """The server has acknowledged the cancellation."""


@dataclass(slots=True)
class Caller:
    """Somebody with a token."""

    name: str
    token: str
    network: Network
    done: list[str] = field(default_factory=list)
    """Ids of requests that have changed something, as it was told."""
    _asked: int = 0

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx.Response | None:
        """The answer, None where there was none or the server could not give one now."""
        content = None if body is None else json.dumps(body).encode()
        self._asked += 1
        request_id = f"{self.name}-{self._asked}"
        given = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "X-Request-Id": request_id,
            **(headers or {}),
        }
        request = httpx.Request(method, URL + path, headers=given, content=content)
        try:
            answer = await self.network.send(self.name, request)
        except httpx.TransportError:
            return None
        if method != "GET" and answer.is_success and not answer.headers.get("Idempotency-Replayed"):
            self.done.append(request_id)
        return None if answer.status_code in (429, 503) else answer

    async def insist(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx.Response | None:
        """The answer, after as many tries as it takes within a bound."""
        for attempt in range(TRIES):
            answer = await self.call(method, path, body, headers)
            if answer is not None:
                return answer
            await asyncio.sleep(min(5.0, 0.2 * 2**attempt))
        return None


@dataclass
class Submitters:
    """The users of one project."""

    caller: Caller
    project: str
    regions: tuple[str, ...]
    every_s: float
    trace: Trace
    dice: random.Random
    kinds: tuple[str, ...] = KINDS
    names_regions: bool = True
    """Whether some jobs say where they may run."""
    submissions: list[Submission] = field(default_factory=list)

    async def run(self) -> None:
        """Submit and cancel for as long as the task lives."""
        async with asyncio.TaskGroup() as users:
            while True:
                await asyncio.sleep(self.dice.expovariate(1.0 / self.every_s))
                users.create_task(self._use())

    async def _use(self) -> None:
        number, kind = len(self.submissions), self.dice.choice(self.kinds)
        name = f"{kind}-{self.project}-{number}"
        submission = Submission(name, kind, f"key-{name}")
        self.submissions.append(submission)
        document = self._document(name, kind)
        copies = self.dice.randint(2, 5) if self.dice.random() < 0.1 else 1
        async with asyncio.TaskGroup() as tries:
            for _ in range(copies):
                tries.create_task(self._submit(submission, document))
        if submission.job_id is not None and self.dice.random() < 0.2:
            await asyncio.sleep(self.dice.expovariate(1.0 / 20.0))
            await self._cancel(submission)

    async def _submit(self, submission: Submission, document: dict[str, Any]) -> None:
        answer = await self.caller.insist("POST", "/v1/jobs", document, {"Idempotency-Key": submission.key})
        if answer is None:
            return
        if answer.status_code == 409:  # its copy is being stored at this moment
            return
        if answer.status_code != 201:
            self.trace.violation(
                "a good job is accepted", f"{submission.name}: {answer.status_code} {answer.text[:300]}"
            )
            return
        if answer.headers.get("Idempotency-Replayed"):
            self.trace.sometimes("a repeated submission was answered with the first job")
        job_id = answer.json()["job_id"]
        if submission.job_id not in (None, job_id):
            self.trace.violation(
                "a submission makes one job", f"{submission.name}: {submission.job_id} and {job_id}"
            )
        submission.job_id = job_id

    async def _cancel(self, submission: Submission) -> None:
        submission.cancel_asked = True
        answer = await self.caller.insist("POST", f"/v1/jobs/{submission.job_id}/cancel")
        if answer is None:
            return
        if answer.status_code not in (200, 409):
            self.trace.violation(
                "a job can be cancelled", f"{submission.name}: {answer.status_code} {answer.text[:300]}"
            )
        if answer.status_code == 200:
            submission.cancelled = True
            self.trace.sometimes(f"a job was cancelled while {answer.json()['state']}")

    def _document(self, name: str, kind: str) -> dict[str, Any]:
        dice = self.dice
        stages: Any = dice.randint(1, 4)
        if dice.random() < 0.4:
            stages = f"{dice.randint(1, 2)}..{dice.randint(3, 5)}"
        document: dict[str, Any] = {
            "name": name,
            "project": self.project,
            "model": {
                "layers": 6,
                "hidden": 64,
                "heads": 4,
                "kv_heads": 4,
                "head_dim": 16,
                "ffn": 128,
                "gated_mlp": True,
                "vocab": 256,
                "seq_len": 32,
            },
            "training": {"steps": dice.randint(3, 25), "micro_batch": 1, "micro_batches": 4, "dtype": "fp32"},
            "parallelism": {"stages": stages},
            "checkpoint": {"every_steps": dice.randint(1, 6)},
            "elasticity": dice.choice(("none", "restart")),
            "priority": dice.randint(0, 100),
            "stop": {"grace": f"{dice.randint(1, 6)}s"},
            "run": {"command": ["train"]},
        }
        if dice.random() < 0.5:
            document |= {"elasticity": "resize", "run": {"builtin": "gpt"}}
        if kind == HUGE:
            document |= {"elasticity": "none", "run": {"command": ["train"]}}
            document["parallelism"] = {"stages": 6, "data": 10_000}
        elif self.names_regions and dice.random() < 0.15:
            document["placement"] = {"regions": sorted(dice.sample(self.regions, 2))}
        return document


@dataclass
class Operator:
    """Cordons, drains and brings back nodes; changes links."""

    caller: Caller
    nodes: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    every_s: float
    dice: random.Random
    out: set[str] = field(default_factory=set)
    narrowed: set[tuple[str, str]] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.dice.expovariate(1.0 / self.every_s))
            if self.dice.random() < 0.3:
                await self._link(self.dice.choice(self.links), self.dice.uniform(0.05, 1.0) * LINK_BPS)
            elif self.out and self.dice.random() < 0.5:
                await self._bring_back(self.dice.choice(sorted(self.out)))
            else:
                node = self.dice.choice(self.nodes)
                self.out.add(node)
                await self.caller.call("POST", f"/v1/nodes/{node}/{self.dice.choice(('cordon', 'drain'))}")

    async def restore(self) -> None:
        """All nodes, and all links as wide as they were."""
        for node in sorted(self.out):
            await self._bring_back(node)
        for link in sorted(self.narrowed):
            await self._link(link, LINK_BPS)

    async def _bring_back(self, node: str) -> None:
        answer = await self.caller.insist("POST", f"/v1/nodes/{node}/uncordon")
        if answer is not None and answer.is_success:
            self.out.discard(node)

    async def _link(self, link: tuple[str, str], capacity_bps: float) -> None:
        self.narrowed.add(link)
        await self.caller.insist(
            "PUT", f"/v1/links/{link[0]}/{link[1]}", {"capacity_bps": capacity_bps, "latency_s": 0.002}
        )


LINK_BPS = 10e9


@dataclass
class Treasurer:
    """Bounds what projects may hold and spend, and changes its mind."""

    caller: Caller
    projects: tuple[str, ...]
    gpus: int
    """Of the whole cluster."""
    every_s: float
    dice: random.Random

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.dice.expovariate(1.0 / self.every_s))
            project, dice = self.dice.choice(self.projects), self.dice
            gpus = dice.choice((None, dice.randint(0, self.gpus // 2)))
            usd = None if dice.random() < 0.25 else 10.0 ** dice.uniform(-5.0, -1.5)
            await self.caller.insist("PUT", f"/v1/projects/{project}/quota", quota(gpus, usd))

    async def lift(self) -> None:
        """No bounds any more."""
        for project in self.projects:
            await self.caller.insist("PUT", f"/v1/projects/{project}/quota", quota(None, None))


def quota(gpus: int | None, usd_per_month: float | None) -> dict[str, Any]:
    """The document that bounds a project."""
    return {"gpus": gpus, "usd_per_month": usd_per_month}


@dataclass
class PriceFeed:
    """Tells prices of electricity, unless it is stale."""

    caller: Caller
    regions: tuple[str, ...]
    every_s: float
    trace: Trace
    dice: random.Random
    is_stale: bool = False

    async def run(self) -> None:
        while True:
            if not self.is_stale:
                await self.tell(self.regions)
            await asyncio.sleep(self.every_s)

    async def tell(self, regions: Iterable[str]) -> None:
        for region in regions:
            price = {
                "kind": "electricity",
                "region": region,
                "value": round(self.dice.uniform(-0.02, 0.4), 4),
            }
            await self.caller.call("PUT", "/v1/prices", price)
