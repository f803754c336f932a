"""The event simulation of a plan as one loop over numbers, for `scheduler.pipeline.kernel.compiled`."""

from __future__ import annotations

import numpy as np

from scheduler.pipeline.kernel import Counts, Floats


def run(
    begin: Counts,
    duration: Floats,
    needs: Counts,
    wakes: Counts,
    sends: Counts,
    link: Counts,
    links: int,
    latency: Floats,
    transfer: Floats,
    blocking: bool,
    start: Floats,
    end: Floats,
) -> float:
    """Seconds until the last computation has ended; −1 if ranks wait for each other. Fills `start` and `end`.

    Rank r runs the steps begin[r] … begin[r + 1] − 1. Step i is a computation of duration[i] seconds that waits for
    the result of computation needs[i] (−1: for nothing). Or, if sends[i] ≥ 0, the message with that computation's
    result to rank wakes[i], over link[i] (−1: none, it arrives at once), which it occupies for transfer[i], to
    arrive latency[i] later. The earliest event comes first, of equally early ones that of the lowest rank: so
    messages of several ranks queue for a link in the order in which they are sent.
    """
    ranks = begin.size - 1
    never = np.inf
    position = begin[:-1].copy()
    free = np.zeros(ranks)  # when the rank can start its next step
    event = np.zeros(ranks)  # when its computation ends, or it is free for a step; `never` while it waits
    computing = np.zeros(ranks, dtype=np.bool_)
    arrival = np.full(duration.size, -1.0)  # of each computation's result, where it is needed
    link_free = np.zeros(links)
    makespan = 0.0
    while True:
        rank, now = -1, never
        for each in range(ranks):
            if event[each] < now:
                rank, now = each, event[each]
        if rank < 0:
            break
        step, stop = position[rank], begin[rank + 1]
        if computing[rank]:
            end[step] = now
            if wakes[step] < 0:  # the result stays here
                arrival[step] = now
            makespan = max(makespan, now)
            computing[rank] = False
            step += 1
        free[rank], event[rank] = now, never
        while step < stop:
            computed = sends[step]
            if computed < 0:
                need = needs[step]
                if need < 0 or arrival[need] >= 0:
                    start[step] = now if need < 0 else max(now, arrival[need])
                    event[rank] = start[step] + duration[step]
                    computing[rank] = True
                break
            arrived = now
            start[step] = now
            if link[step] >= 0:
                start[step] = max(now, link_free[link[step]])
                sent = start[step] + transfer[step]
                link_free[link[step]] = sent
                arrived = sent + latency[step]
            end[step] = arrived
            arrival[computed] = arrived
            other = wakes[step]
            following = position[other]
            if (
                not computing[other]
                and event[other] == never
                and following < begin[other + 1]
                and sends[following] < 0
                and needs[following] == computed
            ):
                start[following] = max(free[other], arrived)
                event[other] = start[following] + duration[following]
                computing[other] = True
            step += 1
            if blocking and arrived > now:
                event[rank] = arrived
                break
        position[rank] = step
    for rank in range(ranks):
        if position[rank] < begin[rank + 1]:
            return -1.0
    return makespan
