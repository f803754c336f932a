"""What a seat is worth to a job, and whether it keeps what the job's owner demands beside that."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.cost import SECONDS_PER_HOUR
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ground import Floats
from scheduler.policies.horizon.work import UNLIMITED, Seat, Work

_MOST_EARNED: Final = 0.9
"""Of what a second costs, the most that a price below zero may give back."""
_NO_WORTH: Final = 1e-9
"""Seconds a second where a price is worth nothing."""


def score_of(work: Work, seat: Seat, board: Board) -> float:
    """The score of one seat, from now to the end of the job: by the timeline, its grants and its transfers."""
    weights, run_s = board.weights_of(work), board.remaining_s(work, seat)
    hold = 1 + weights.gpu_s * seat.placement.gpus
    holding = board.holding_usd(seat, run_s)
    if board.prices.lowest < 0:
        kilowatts = np.array([math.fsum(kilowatts for _, kilowatts in seat.draw_kw)])
        least = float(least_price(np.array([hold]), weights.electricity_s, kilowatts)[0])
        if board.prices.lowest < least:
            holding = replace(board, prices=board.prices.at_least(least)).holding_usd(seat, run_s)
    egress = (
        work.steps * seat.egress_usd_per_step
        + (seat.egress_usd_once if seat.ready_s > board.now_s else 0.0)
        + work.bringing_usd(seat.placement)
    )
    return run_s * hold + weights.electricity_s * holding + weights.egress_s * egress


def least_price(hold: Floats, electricity_s: float, kilowatts: Floats) -> Floats:
    """The lowest price at which a second more on a seat is still worth less than none, USD per kWh × PUE.

    Prices below zero are what they are in every bill; in a score they count down to here, so that no job is slowed, or
    kept longer where it is, in order to earn.
    """
    worth = np.maximum(electricity_s * kilowatts / SECONDS_PER_HOUR, _NO_WORTH)
    return -_MOST_EARNED * hold / worth


def end_and_bill(work: Work, seat: Seat, board: Board) -> tuple[float, float]:
    """When a job would end that does on a seat what it declared (epoch seconds), and what it would pay from now on."""
    run_s = max(0.0, seat.ready_s - board.now_s) + work.declared * seat.iteration_s
    once = seat.egress_usd_once if seat.ready_s > board.now_s else 0.0
    sent_usd = work.declared * seat.egress_usd_per_step + once + work.bringing_usd(seat.placement)
    return board.now_s + run_s, board.holding_usd(seat, run_s) + sent_usd


def keeps_limits(work: Work, seat: Seat, board: Board) -> bool:
    """Whether a job would end on a seat by its deadline and within its budget, by forecast."""
    if work.limits is UNLIMITED:
        return True
    end_s, bill_usd = end_and_bill(work, seat, board)
    return end_s <= work.limits.until_s and bill_usd <= work.limits.left_usd
