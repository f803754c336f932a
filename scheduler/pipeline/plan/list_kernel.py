"""The list scheduler as one loop over numbers, for `scheduler.pipeline.kernel.compiled`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.pipeline.kernel import Counts, Floats


def list_schedule(
    rank_of: Counts,
    preceding: Counts,
    following: Counts,
    duration: Floats,
    link: Counts,
    links: int,
    latency: Floats,
    transfer: Floats,
    inflight: Floats,
    pending: Floats,
    room: Floats,
    eager: Counts,
    patience: float,
    weights_first: bool,
    split: bool,
    micro_batches: int,
    taken: NDArray[np.int64],
) -> float:
    """Seconds until all has run, or −1 if the memory holds it up. Fills `taken` with (rank, op, stage, micro-batch).

    Op 0 is F, 1 I, 2 W, 3 a whole backward; `duration[op, stage]`. `link[d, stage]` is what the stage's message goes
    over, d = 0 with an activation, 1 with a gradient (−1: none). `room[rank]` is the memory for activations.
    A stage takes F only if every later stage of its rank could still take one: otherwise they could block each other.
    """
    stages, ranks = rank_of.size, room.size
    never = np.inf
    # The stages of a rank, in order: `own[first[rank]]` … `own[first[rank + 1] - 1]`.
    first, own, found = np.zeros(ranks + 1, dtype=np.int64), np.zeros(stages, dtype=np.int64), 0
    for rank in range(ranks):
        for stage in range(stages):
            if rank_of[stage] == rank:
                own[found] = stage
                found += 1
        first[rank + 1] = found
    # When the input of the next forward and of the next backward is there, `never` while nobody has sent it.
    arrival = np.full((2, stages, micro_batches), never)
    done = np.zeros((3, stages), dtype=np.int64)  # F, I or B, W
    ended = np.full((stages, micro_batches), never)  # each I
    for stage in range(stages):
        if preceding[stage] < 0:
            arrival[0, stage, :] = 0.0
    held = np.zeros(ranks)
    busy = np.full(ranks, -1.0)  # when what the rank runs ends; below 0: idle
    running = np.zeros((ranks, 3), dtype=np.int64)
    link_free = np.zeros(max(links, 1))
    now, makespan, count, total = 0.0, 0.0, 0, taken.shape[0]
    while True:
        for rank in range(ranks):
            if busy[rank] < 0 or busy[rank] > now:
                continue
            busy[rank] = -1.0
            makespan = max(makespan, now)
            op, stage, m = running[rank]
            if op == 2:
                held[rank] -= pending[stage]
                continue
            way = 0 if op == 0 else 1
            if way == 1:
                held[rank] -= inflight[stage]
                if op == 1:
                    held[rank] += pending[stage]
                    ended[stage, m] = now
            other = following[stage] if way == 0 else preceding[stage]
            if way == 0 and other < 0:
                arrival[1, stage, m] = now  # the loss is there
            if other >= 0:
                there = now
                over = link[way, stage]
                if over >= 0:
                    link_free[over] = max(now, link_free[over]) + transfer[way, stage]
                    there = link_free[over] + latency[way, stage]
                arrival[way, other, m] = there
        if count == total:
            last = now
            for rank in range(ranks):
                last = max(last, busy[rank])
            return max(makespan, last)
        upcoming = never
        for rank in range(ranks):
            if busy[rank] >= 0:
                upcoming = min(upcoming, busy[rank])
                continue
            best, op, chosen = 9, -1, -1
            soonest = never  # when something else than W can start
            oldest, weight_stage = never, -1
            starved = False  # whether a forward lacks nothing but memory
            for place in range(first[rank], first[rank + 1]):
                stage = own[place]
                forwards, backwards = done[0, stage], done[1, stage]
                if backwards < forwards:
                    at = arrival[1, stage, backwards]
                    if at <= now:
                        if best > 1:
                            best, op, chosen = 1, 1 if split else 3, stage
                    else:
                        soonest = min(soonest, at)
                if forwards < micro_batches:
                    need = held[rank] + inflight[stage]
                    for later in range(place + 1, first[rank + 1]):
                        need += inflight[own[later]]
                    if need <= room[rank] * (1 + 1e-12):
                        at = arrival[0, stage, forwards]
                        if at <= now:
                            rating = 0 if forwards - done[2, stage] < eager[stage] else 3
                            # Of equals the later stage: it is nearer to giving its memory back.
                            if rating < best or (rating == best and op == 0):
                                best, op, chosen = rating, 0, stage
                        else:
                            soonest = min(soonest, at)
                    elif arrival[0, stage, forwards] <= now:
                        starved = True
                if split and done[2, stage] < backwards and ended[stage, done[2, stage]] < oldest:
                    oldest = ended[stage, done[2, stage]]
                    weight_stage = stage
            if oldest < never:
                if weights_first and best > 2:
                    best, op, chosen = 2, 2, weight_stage
                elif best == 9 and (starved or now + patience * duration[2, weight_stage] <= soonest):
                    best, op, chosen = 4, 2, weight_stage
            if op < 0:
                if soonest < never:
                    upcoming = min(upcoming, soonest)
                continue
            kind = 0 if op == 0 else (2 if op == 2 else 1)
            m = done[kind, chosen]
            done[kind, chosen] += 1
            if op == 3:
                done[2, chosen] += 1
            if op == 0:
                held[rank] += inflight[chosen]
            running[rank, 0], running[rank, 1], running[rank, 2] = op, chosen, m
            busy[rank] = now + duration[op, chosen]
            upcoming = min(upcoming, busy[rank])
            taken[count, 0], taken[count, 1], taken[count, 2], taken[count, 3] = rank, op, chosen, m
            count += 1
        if upcoming == never:
            return -1.0
        now = upcoming
