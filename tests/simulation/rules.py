"""The rules that every commit must keep. They know the tables and the protocol, and nothing of the code.

Checked incrementally: only what a commit has touched is looked at again, by plain SQL.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping

from tests.simulation.authors import Authors
from tests.simulation.rows import OBJECTS, Change, Watch
from tests.simulation.running import Running
from tests.simulation.tenants import Tenants
from tests.simulation.trace import Trace

ROUNDING = 1e-6
"""Relative: sums of granted bandwidth may exceed a capacity by rounding."""
_PROCESS_ENDS = ("exited", "stopped", "failed-to-start", "lost")
LEGAL: Mapping[str, Mapping[str | None, tuple[str, ...]]] = {
    "job": {
        None: ("queued",),
        "queued": ("starting", "cancelled", "rejected", "failed"),
        "starting": ("running", "stopping"),
        "running": ("stopping", "succeeded"),
        "stopping": ("queued", "cancelled", "failed", "succeeded"),
        "rejected": ("queued",),
    },
    "allocation": {
        None: ("starting",),
        "starting": ("running", "stopping", "ended"),
        "running": ("stopping", "ended"),
        "stopping": ("ended",),
    },
    "process": {
        None: ("pending",),
        "pending": ("starting", "ready", *_PROCESS_ENDS),
        "starting": ("ready", *_PROCESS_ENDS),
        "ready": ("exited", "stopped", "lost"),
    },
    "node": {
        None: ("ready",),
        "ready": ("cordoned", "lost"),
        "cordoned": ("ready",),
        "lost": ("ready", "cordoned"),
    },
}
"""Every move there is; None: being made."""
LIVE = ("starting", "running", "stopping")


class CommitRules:
    """Looks at every commit."""

    def __init__(self, driver: sqlite3.Connection, running: Running, trace: Trace) -> None:
        self._driver = driver
        self._watch = Watch(driver)
        self._running = running
        self._trace = trace
        self._names: dict[str, str] = {}
        self._tenants = Tenants(driver, trace)
        self._authors = Authors(driver, trace)
        self._held_bps: dict[str, float] = defaultdict(float)
        self._gpus_of: dict[str, frozenset[tuple[str, int]]] = {}
        """Live allocation → the GPUs that its processes are launched on."""
        self._holder_of: dict[tuple[str, int], str] = {}
        self.commit = 0

    def look(self, who: str) -> None:
        """After a commit of `who`."""
        self.commit += 1
        changes = self._watch.take()
        if not changes:
            return
        self._trace.add(
            f"commit {who} " + " ".join(f"{each.what}:{each.name}:{each.old}>{each.new}" for each in changes)
        )
        moves: list[tuple[str, str, str | None, str | None]] = []
        told: list[tuple[str, str, str | None, str | None]] = []
        touched_jobs: dict[str, None] = {}
        touched_allocations: dict[str, None] = {}
        links: dict[str, None] = {}
        for change in changes:
            if change.what in OBJECTS:
                moves.append((change.what, change.name, change.old, change.new))
                self._check_move(change)
                if change.what == "job":
                    touched_jobs[change.name] = None
                elif change.what == "allocation":
                    touched_allocations[change.name] = None
            elif change.what.startswith("event "):
                told.append((change.what.removeprefix("event "), change.name, change.old, change.new))
            elif change.what == "held":
                touched_allocations[change.name] = None
                self._tenants.see(change)
            elif change.what == "link":
                links[change.name] = None
            else:
                self._note(change)
        if sorted(moves, key=str) != sorted(told, key=str):
            odd = sorted(set(moves) ^ set(told), key=str) or "one of them twice"
            self._broken("every move has its event in the same commit", str(odd))
        self._authors.look(changes)
        for allocation_id in touched_allocations:
            self._check_allocation(allocation_id, touched_jobs)
        for job_id in touched_jobs:
            self._check_job(job_id)
        for link in links:
            self._check_link(*link.split(" "))

    def _check_move(self, change: Change) -> None:
        if change.new is None or change.new not in LEGAL[change.what].get(change.old, ()):
            self._broken("only legal moves", f"{change.what} {change.name}: {change.old} to {change.new}")
        if change.what == "job" and change.new == "succeeded":
            self._running.succeeded(change.name, self._declared_steps(change.name))
        if change.what == "allocation" and (change.old, change.new) == ("starting", "stopping"):
            self._note_release(change.name)
        if change.what == "node" and change.new == "lost":
            self._trace.sometimes("a node was lost")
        if change.what == "node" and change.old == "lost" and change.new == "ready":
            self._trace.sometimes("a lost node came back")
        if change.what == "process" and change.new == "lost":
            self._trace.sometimes("a process was lost with its node")

    def _declared_steps(self, job_id: str) -> int:
        row = self._driver.execute("SELECT declared_steps FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
        return int(row[0])

    def _note_release(self, allocation_id: str) -> None:
        cause, processes = self._driver.execute(
            "SELECT stop_cause, (SELECT count(*) FROM processes WHERE allocation_id = a.allocation_id) "
            "FROM allocations a WHERE allocation_id = ?",
            (allocation_id,),
        ).fetchone()
        if cause in ("failed-to-start", "never-started") and processes > 1:
            self._trace.sometimes("a gang let its stages go because one could not start")

    def _note(self, change: Change) -> None:
        match change.what:
            case "submitted":
                first = self._names.setdefault(str(change.new), change.name)
                if first != change.name:
                    self._broken("a submission makes one job", f"{change.new}: {first} and {change.name}")
            case "cancelled":
                self._running.cancelled_at[change.name] = self.commit
            case "quota" | "spent":
                self._tenants.see(change)
            case "token":
                self._authors.used(change)
            case "token back":
                self._broken("what was revoked stays so", change.name)
            case "ledger":
                self._broken("the ledger is append-only", f"row {change.name} was {change.new}")
            case "epoch":
                self._trace.sometimes(
                    "another replica took the lead" if change.old != "0" else "the first leader"
                )
            case "promise":
                self._trace.sometimes("a place was promised")
                self._tenants.see(change)
            case "promise broken":
                self._trace.sometimes("a promise was broken")
                self._tenants.see(change)

    def _check_allocation(self, allocation_id: str, touched_jobs: dict[str, None]) -> None:
        row = self._driver.execute(
            "SELECT state, job_id, generation, epoch FROM allocations WHERE allocation_id = ?",
            (allocation_id,),
        ).fetchone()
        held = self._driver.execute(
            "SELECT node_id, gpu_index FROM held_gpus WHERE allocation_id = ?", (allocation_id,)
        ).fetchall()
        if row is None:
            self._broken("what is held belongs to an allocation", allocation_id)
            return
        state, job_id, generation, epoch = row
        touched_jobs[job_id] = None
        if state == "ended":
            self._check_given_back(allocation_id, held)
            return
        if allocation_id not in self._gpus_of:
            self._check_birth(allocation_id, job_id, generation, epoch)
        if frozenset(held) != self._gpus_of[allocation_id] or len(held) != len(self._gpus_of[allocation_id]):
            self._broken("a live gang holds its GPUs", f"{allocation_id}: {sorted(held)} held")

    def _check_given_back(self, allocation_id: str, held: list[tuple[str, int]]) -> None:
        ports, links = (
            self._driver.execute(
                f"SELECT count(*) FROM {table} WHERE allocation_id = ?",  # noqa: S608
                (allocation_id,),
            ).fetchone()[0]
            for table in ("held_ports", "held_links")
        )
        if held or ports or links:
            self._broken(
                "what has ended holds nothing",
                f"{allocation_id}: {len(held)} GPUs, {ports} ports, {links} links",
            )
        for gpu in self._gpus_of.pop(allocation_id, frozenset()):
            self._holder_of.pop(gpu, None)

    def _check_birth(self, allocation_id: str, job_id: str, generation: int, epoch: int) -> None:
        """A gang is there whole, of the next generation, made by who leads, on GPUs that nobody has."""
        processes = self._driver.execute(
            "SELECT rank, node_id, launch, state FROM processes WHERE allocation_id = ? ORDER BY rank",
            (allocation_id,),
        ).fetchall()
        launches = [json.loads(launch) for _, _, launch, _ in processes]
        sizes = {int(launch["env"]["WORLD_SIZE"]) for launch in launches}
        if [rank for rank, *_ in processes] != list(range(len(processes))) or sizes != {len(processes)}:
            self._broken("a gang is whole", f"{allocation_id}: {len(processes)} of {sorted(sizes)} processes")
        gpus = [
            (node_id, index)
            for (_, node_id, _, _), launch in zip(processes, launches, strict=True)
            for index in launch["gpu_indices"]
        ]
        self._gpus_of[allocation_id] = frozenset(gpus)
        for node_id, index in gpus:
            other = self._holder_of.setdefault((node_id, index), allocation_id)
            if other != allocation_id or gpus.count((node_id, index)) > 1:
                self._broken("no GPU is promised twice", f"{node_id}/{index}: {other} and {allocation_id}")
            there = self._driver.execute("SELECT gpus FROM nodes WHERE node_id = ?", (node_id,)).fetchone()
            if there is None or not 0 <= index < there[0]:
                self._broken("only GPUs that exist are given away", f"{node_id}/{index}")
        leads = self._driver.execute("SELECT epoch FROM leader").fetchone()[0]
        if epoch != leads:
            self._broken("only who leads gives away", f"{allocation_id} by epoch {epoch}, {leads} leads")
        generations = [
            number
            for (number,) in self._driver.execute(
                "SELECT generation FROM allocations WHERE job_id = ? ORDER BY generation", (job_id,)
            )
        ]
        if generations != list(range(1, generation + 1)):
            self._broken("generations follow each other", f"{job_id}: {generations}")
        if job_id in self._running.cancelled_at:
            self._broken("nothing of a cancelled job is started", f"{allocation_id} of {job_id}")

    def _check_job(self, job_id: str) -> None:
        state, generation = self._driver.execute(
            "SELECT state, generation FROM jobs WHERE job_id = ?", (job_id,)
        ).fetchone()
        live = self._driver.execute(
            "SELECT state, generation FROM allocations WHERE job_id = ? AND state <> 'ended'", (job_id,)
        ).fetchall()
        if len(live) != (state in LIVE):
            self._broken("who lives holds one allocation", f"{job_id} is {state} with {live}")
        elif live and live[0] != (state, generation):
            self._broken("a job and its allocation agree", f"{job_id} is {state}/{generation}, it {live[0]}")
        promised = self._driver.execute(
            "SELECT count(*) FROM promises WHERE job_id = ?", (job_id,)
        ).fetchone()[0]
        if promised and state in ("succeeded", "failed", "cancelled", "rejected"):
            self._broken("nothing is promised to who has ended", f"{job_id} is {state}")

    def _check_link(self, src: str, dst: str) -> None:
        """What is held fits, unless it was made smaller than what it carried already."""
        name = f"{src} {dst}"
        held = self._driver.execute(
            "SELECT coalesce(sum(bandwidth_bps), 0) FROM held_links WHERE src = ? AND dst = ?", (src, dst)
        ).fetchone()[0]
        capacity = self._driver.execute(
            "SELECT capacity_bps FROM links WHERE src = ? AND dst = ?", (src, dst)
        ).fetchone()
        grew = held > self._held_bps[name] * (1 + ROUNDING)
        self._held_bps[name] = held
        if grew and (capacity is None or held > capacity[0] * (1 + ROUNDING)):
            self._broken("no byte/s of a link is promised twice", f"{name}: {held:g} held of {capacity}")

    def _broken(self, rule: str, detail: str) -> None:
        self._trace.violation(rule, detail)
