"""Tenants and their shares of the GPUs: who holds more than its own while others want theirs.

A tenant's share is its weight over that of all tenants that have jobs. One that nobody of waits takes no more than it
holds, and what it leaves of its share is the others' (water-filling). A tenant without a weight counts as the one with
the smallest. Whoever holds its share comes after those who do not; who has nobody before it may take all that is free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Set

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ground import schedulable_gpus


def sated(board: Board) -> frozenset[str]:
    """The tenants that hold what they are due now; nobody where there are no shares."""
    waiting = {work.spec.project for job_id, work in board.works.items() if job_id not in board.seats}
    return _at_their_share(board, waiting)


def at_their_share(board: Board) -> frozenset[str]:
    """The tenants that hold what they would be due if all that have jobs wanted more: whoever loses a job does."""
    return _at_their_share(board, {work.spec.project for work in board.works.values()})


def _at_their_share(board: Board, wanting: Set[str]) -> frozenset[str]:
    if not board.shares:
        return frozenset()
    held = Counter({work.spec.project: 0 for work in board.works.values()})
    for job_id, seat in board.seats.items():
        held[board.works[job_id].spec.project] += seat.placement.gpus
    needs = {project: math.inf if project in wanting else float(gpus) for project, gpus in held.items()}
    due = fair_shares(needs, board.shares, schedulable_gpus(board.cluster))
    return frozenset(project for project, gpus in held.items() if gpus >= due[project])


def fair_shares(needs: Mapping[str, float], weights: Mapping[str, float], total: float) -> dict[str, float]:
    """What each tenant is due of a total, by weight, and nobody more than it needs."""
    least = min(weights.values())
    left, open_ = total, {tenant: weights.get(tenant, least) for tenant in needs}
    due: dict[str, float] = {}
    while open_:
        unit = left / sum(open_.values())
        content = [tenant for tenant, weight in open_.items() if needs[tenant] <= unit * weight]
        if not content:
            return due | {tenant: unit * weight for tenant, weight in open_.items()}
        for tenant in content:
            due[tenant] = needs[tenant]
            left = max(0.0, left - needs[tenant])
            del open_[tenant]
    return due
