"""Shortest remaining processing time, elastic, in one region a job: what order and elasticity give without prices.

The waiting job with the least time left comes first and gets the region and the stages that end it soonest; where it
finds no place, a longer job makes room; running jobs grow and move where that pays for the restart. So far as horizon,
but with time alone in its scores (L. Schrage, 1968, for the order), no chain, and nothing played out.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ways import elastic
from scheduler.policies.narrowed import in_one_region


def act(board: Board) -> None:
    """Starts, ejects and improves, every job inside one region."""
    for job_id, work in board.works.items():
        board.works[job_id] = replace(work, demand=in_one_region(work.demand))
    elastic(board)
