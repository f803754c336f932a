"""What projects may hold and spend, counted from what every commit inserts: nothing is started beyond a quota.

Money is bounded when a start is planned or promised: bills that were not written then, and a quota that was lowered
since, do not count. So what counts is what a project had spent some time before, and the loosest of its quotas since.
A running job that is moved goes on, whatever has been spent: it does not begin.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque

from tests.simulation.clocks import START_S
from tests.simulation.rows import Change
from tests.simulation.trace import Trace

MOST_PLANS_TAKE_S = 90.0
"""From the look at the ledger to the start: promises wait for what has to be left first."""


class Tenants:
    """Of every project: its quota, the GPUs that it holds, and what it has spent when."""

    def __init__(self, driver: sqlite3.Connection, trace: Trace) -> None:
        self._driver = driver
        self._trace = trace
        self._gpus: dict[str, int | None] = {}
        self._usd: defaultdict[str, deque[tuple[float, float | None]]] = defaultdict(deque)
        """Project → since when it may spend how much in a month."""
        self._held: defaultdict[str, int] = defaultdict(int)
        self._spent: defaultdict[str, deque[tuple[float, float]]] = defaultdict(deque)
        """Project and month → when what it had spent became how much."""
        self._moving: set[str] = set()
        """Jobs that stop for a place that is promised to them."""
        self._moved: set[str] = set()
        """Allocations to which such jobs came."""

    def see(self, change: Change) -> None:
        """One change of a commit, in the order in which they were made."""
        match change.what:
            case "quota":
                self._gpus[change.name] = None if change.old is None else int(change.old)
                usd = None if change.new is None else float(change.new)
                self._usd[change.name].append((self._trace.loop.time(), usd))
                self._trace.sometimes("a quota was changed")
            case "spent":
                known = self._spent[f"{change.name} {change.old}"]
                sum_usd = (known[-1][1] if known else 0.0) + float(change.new or 0.0)
                known.append((self._trace.loop.time(), sum_usd))
            case "promise" if change.new == "move":
                self._moving.add(change.name)
            case "promise broken":
                self._moving.discard(change.name)
            case "held" if change.new is None:
                self._held[str(change.old)] -= 1
            case "held":
                self._given(str(change.new), change.name)

    def _given(self, project: str, allocation_id: str) -> None:
        """A GPU more."""
        self._held[project] += 1
        goes_on = self._goes_on(allocation_id)
        gpus, usd = self._gpus.get(project), self._loosest_usd(project)
        if gpus is not None:
            self._trace.sometimes("a project with a quota was given GPUs")
            if self._held[project] > gpus:
                self._trace.violation(
                    "no project holds more than its quota",
                    f"{allocation_id}: {project} holds {self._held[project]} of {gpus} GPUs",
                )
        if usd is not None and not goes_on:
            spent_usd = self._spent_usd(project)
            if spent_usd > 0:
                self._trace.sometimes("a project with a quota of money was given GPUs")
            if spent_usd >= usd:
                self._trace.violation(
                    "nothing is started beyond a quota of money",
                    f"{allocation_id}: {project} has spent {spent_usd:g} of {usd:g} USD",
                )

    def _goes_on(self, allocation_id: str) -> bool:
        """Whether that is where a job was moved to that ran."""
        (job_id,) = self._driver.execute(
            "SELECT job_id FROM allocations WHERE allocation_id = ?", (allocation_id,)
        ).fetchone()
        if job_id in self._moving:
            self._moving.discard(job_id)
            self._moved.add(allocation_id)
        return allocation_id in self._moved

    def _loosest_usd(self, project: str) -> float | None:
        """Of the quotas that may have been in force when this was planned; None: one of them was none."""
        known, long_ago_s = self._usd[project], self._trace.loop.time() - MOST_PLANS_TAKE_S
        while len(known) > 1 and known[1][0] <= long_ago_s:
            known.popleft()
        if not known or known[0][0] > long_ago_s:  # before it there was none
            return None
        bounds = [usd for _, usd in known if usd is not None]
        return max(bounds) if len(bounds) == len(known) else None

    def _spent_usd(self, project: str) -> float:
        """This month, long enough ago to be known by whoever has planned."""
        now_s = self._trace.loop.time()
        month = self._driver.execute(
            "SELECT strftime('%Y-%m', ?, 'unixepoch')", (START_S + now_s,)
        ).fetchone()[0]
        known = self._spent[f"{project} {month}"]
        while len(known) > 1 and known[1][0] <= now_s - MOST_PLANS_TAKE_S:
            known.popleft()
        return known[0][1] if known and known[0][0] <= now_s - MOST_PLANS_TAKE_S else 0.0
