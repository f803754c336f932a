"""What must hold after everything has healed, read from the API, the database and the workers' own witnesses.

They know the contracts (`docs/protocol.md`) and nothing of the code. A worker's times are the clock since boot of this
one machine, so the times of all of them can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import sqlalchemy

from tests.chaos.client import ENDED, Submission
from tests.chaos.faults import Sleep

WAKING_S = 1.5
"""A supervisor that slept together with its worker looks at the lease within half a second; then it kills. Stamps of so
long after the waking of a whole node are told apart: no program can act while it does not run."""


@dataclass(frozen=True, slots=True)
class Ran:
    """When one worker ran. `stamps_s` are in order; the stamps of its waking are left out."""

    job_id: str
    generation: int
    rank: int
    pid: int
    stamps_s: tuple[float, ...]
    waking_s: float
    """For how long it ran on after its whole node had slept for longer than its lease, and is not counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found. Each list names the jobs; empty is well."""

    lost: list[str]
    duplicated: list[str]
    double_run: list[str]
    ran_after_cancel: list[str]
    not_ended: list[str]
    still_held: list[str]
    orphans: list[str]

    def violations(self) -> dict[str, list[str]]:
        """The rules that were broken, and by whom."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: jobs for name, jobs in found.items() if jobs}


def read_witnesses(folder: Path, sleeps: Sequence[Sleep]) -> list[Ran]:
    """What the workers have left."""
    woken = defaultdict(list)
    for sleep in sleeps:
        for pid in sleep.pids:
            woken[pid].append(sleep.woken_at_s)
    return [_ran(path, woken) for path in sorted(folder.iterdir())]


def _ran(path: Path, woken: Mapping[int, Sequence[float]]) -> Ran:
    job_id, generation, rank, pid = path.name.split(".")
    stamps = [float(line) for line in path.read_text().splitlines()]
    counted, waking_s = [], 0.0
    for stamp_s in stamps:
        since_s = min((stamp_s - at_s for at_s in woken[int(pid)] if stamp_s >= at_s), default=WAKING_S)
        if since_s < WAKING_S and stamps[-1] - (stamp_s - since_s) < WAKING_S:
            waking_s = max(waking_s, since_s)  # and it ended within that time
        else:
            counted.append(stamp_s)
    return Ran(job_id, int(generation), int(rank), int(pid), tuple(counted), waking_s)


def double_runs(witnesses: Iterable[Ran]) -> list[str]:
    """Jobs of which a worker of one generation ran after one of a later generation had begun, or twice at once."""
    by_job: dict[str, list[Ran]] = defaultdict(list)
    for ran in witnesses:
        if ran.stamps_s:
            by_job[ran.job_id].append(ran)
    found = []
    for job_id, runs in by_job.items():
        for one, other in combinations(runs, 2):
            overlap_s = min(one.stamps_s[-1], other.stamps_s[-1]) - max(one.stamps_s[0], other.stamps_s[0])
            same_gang = one.generation == other.generation
            if same_gang and one.rank == other.rank:
                found.append(f"{job_id}: rank {one.rank} of generation {one.generation} was started twice")
            elif not same_gang and overlap_s >= 0:
                found.append(
                    f"{job_id}: generations {one.generation} (rank {one.rank}) and {other.generation} "
                    f"(rank {other.rank}) ran together for {overlap_s:.2f} s"
                )
    return found


def runs_after_cancel(submissions: Iterable[Submission], witnesses: Iterable[Ran]) -> list[str]:
    """Jobs that ran after they had been told to be cancelled, or of which a generation began after the cancellation."""
    by_job = {each.job_id: each for each in submissions}
    found = []
    for ran in witnesses:
        submission = by_job.get(ran.job_id)
        if submission is None or not ran.stamps_s:
            continue
        cancelled_at_s, generation = submission.seen_cancelled_at_s, submission.generation_at_cancel
        if cancelled_at_s is not None and ran.stamps_s[-1] > cancelled_at_s:
            late_s = ran.stamps_s[-1] - cancelled_at_s
            found.append(f"{ran.job_id}: rank {ran.rank} ran {late_s:.2f} s after `cancelled` was read")
        if generation is not None and ran.generation > generation:
            found.append(f"{ran.job_id}: generation {ran.generation} ran, it was cancelled in {generation}")
    return found


class Rows:
    """What the database holds in the end."""

    def __init__(self, url: str) -> None:
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        with engine.connect() as connection:
            self.jobs = self._all(connection, "SELECT job_id, name, state, reasons FROM jobs")
            self.held = [
                f"{table}: {count}"
                for table in ("held_gpus", "held_ports", "held_links", "promises")
                if (count := connection.execute(sqlalchemy.text(f"SELECT count(*) FROM {table}")).scalar())  # noqa: S608
            ]
            ended = "('exited', 'stopped', 'failed-to-start', 'lost')"
            alive = self._all(connection, f"SELECT key FROM processes WHERE state NOT IN {ended}")  # noqa: S608
            self.held += [f"process {key}" for (key,) in alive]
        engine.dispose()

    @staticmethod
    def _all(connection: sqlalchemy.Connection, statement: str) -> list[Any]:
        return list(connection.execute(sqlalchemy.text(statement)).all())


def judge(
    submissions: Sequence[Submission], rows: Rows, witnesses: Sequence[Ran], orphans: Iterable[str]
) -> Verdict:
    """Every rule, over everything that was seen."""
    names = {job_id: name for job_id, name, _, _ in rows.jobs}
    ids: dict[str, list[str]] = defaultdict(list)
    for job_id, name in names.items():
        ids[name].append(job_id)
    acknowledged = [each for each in submissions if each.job_ids]
    return Verdict(
        lost=[each.key for each in acknowledged if not each.job_ids <= names.keys()],
        duplicated=[
            each.key for each in submissions if len(each.job_ids) > 1 or len(ids[each.document["name"]]) > 1
        ],
        double_run=double_runs(witnesses),
        ran_after_cancel=runs_after_cancel(submissions, witnesses),
        not_ended=_not_ended(submissions, rows),
        still_held=rows.held,
        orphans=list(orphans),
    )


def _not_ended(submissions: Sequence[Submission], rows: Rows) -> list[str]:
    """Every job can be run: but for the cancelled all must have succeeded."""
    may_be_cancelled = {each.document["name"] for each in submissions if each.to_cancel}
    return [
        f"{job_id} ({name}): {state} {reasons}"
        for job_id, name, state, reasons in rows.jobs
        if state not in ENDED
        or state in ("failed", "rejected")
        or (state == "cancelled" and name not in may_be_cancelled)
    ]
