"""One chaos run from beginning to end, and what it tells."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.checks import Ran, Rows, Verdict, judge, read_witnesses
from tests.chaos.client import Client, Submission
from tests.chaos.faults import Injector
from tests.chaos.programs import worker_processes
from tests.chaos.site import Site

SETTLE_TIMEOUT_S = 300.0
"""After all has healed, for every job to end."""
WORKERS_GONE_S = 5.0
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run."""

    minutes: float
    database: str
    seed: int
    postgres_url: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    plan: Plan
    faults: dict[str, int]
    submissions: list[Submission]
    rows: Rows
    witnesses: list[Ran]
    answers: dict[str, int]
    ended_by_themselves: dict[str, list[int]]
    settled_s: float
    verdict: Verdict

    def figures(self) -> dict[str, object]:
        """Everything as one document."""
        states = [state for _, _, state, _ in self.rows.jobs]
        verdict = self.verdict
        return {
            "database": self.plan.database,
            "seed": self.plan.seed,
            "minutes": self.plan.minutes,
            "faults": self.faults,
            "faults_total": sum(self.faults.values()),
            "answers": dict(sorted(self.answers.items())),
            "ended_by_themselves": self.ended_by_themselves,
            "submitted": sum(1 for each in self.submissions if each.job_ids),
            "finished": states.count("succeeded"),
            "cancelled": states.count("cancelled"),
            "generations": len({(ran.job_id, ran.generation) for ran in self.witnesses}),
            "workers": len(self.witnesses),
            "longest_waking_s": round(max((ran.waking_s for ran in self.witnesses), default=0.0), 2),
            "settled_s": round(self.settled_s, 1),
            "lost": len(verdict.lost),
            "duplicated": len(verdict.duplicated),
            "double_run": len(verdict.double_run),
            "ran_after_cancel": len(verdict.ran_after_cancel),
            "not_ended": len(verdict.not_ended),
            "still_held": len(verdict.still_held),
            "orphans": len(verdict.orphans),
        }

    def table(self) -> str:
        """For people: the faults by kind, then the jobs, then the rules."""
        figures = self.figures()
        rows: list[tuple[str, object]] = [(f"fault: {kind}", count) for kind, count in self.faults.items()]
        rows += [
            (name, figures[name]) for name in ("submitted", "finished", "cancelled", "generations", "workers")
        ]
        rows += [(name.replace("_", " "), figures[name]) for name in Verdict.__slots__]
        return "\n".join(
            ["| what | how many |", "|---|---|", *(f"| {name} | {count} |" for name, count in rows)]
        )

    def line(self) -> str:
        """For programs: one line of JSON."""
        return json.dumps(self.figures())


def run(plan: Plan, folder: Path) -> Outcome:
    """Bring a site up, harm it for so long, heal it, and judge. Everything is taken down, whatever happens."""
    site = Site(folder, plan.database, plan.postgres_url)
    client: Client | None = None
    try:
        site.open()
        client = Client(site.ports, site.headers(), site.witnesses, plan.seed)
        injector = Injector(site, plan.seed)
        client.start()
        end_s = time.monotonic() + plan.minutes * 60
        while time.monotonic() < end_s and client.error is None:
            injector.step()
            site.look()
            time.sleep(LOOK_EVERY_S)
        injector.heal()
        client.stop_submitting()
        settled_s = _settle(site, client)
        client.close()
        faults = {kind: injector.done[kind] for kind in injector.kinds}
        witnesses = read_witnesses(site.witnesses, injector.sleeps)
        rows = Rows(site.database_url)
        return Outcome(
            plan,
            faults,
            client.submissions,
            rows,
            witnesses,
            client.answers,
            {program.name: program.ended_by_itself for program in site.programs if program.ended_by_itself},
            settled_s,
            judge(client.submissions, rows, witnesses, _orphans(site)),
        )
    finally:
        if client is not None:
            client.close()
        site.close()


def _settle(site: Site, client: Client) -> float:
    """Until every job has ended, or the patience has; how long it took."""
    begin_s = time.monotonic()
    for program in site.programs:
        program.start()
    while not client.settled and client.error is None and time.monotonic() - begin_s < SETTLE_TIMEOUT_S:
        site.look()
        time.sleep(LOOK_EVERY_S)
    if client.error is not None:
        raise client.error
    return time.monotonic() - begin_s


def _orphans(site: Site) -> list[str]:
    """Supervisors and workers that are still there some seconds after every job has ended."""
    deadline_s = time.monotonic() + WORKERS_GONE_S
    while True:
        supervisors, workers = worker_processes(site.folder)
        left = [f"{process.pid}" for process in (*supervisors, *workers)]
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(LOOK_EVERY_S)
