"""The annealing of an order as one loop over numbers, for `scheduler.pipeline.kernel.compiled`."""

from __future__ import annotations

import numpy as np

from scheduler.pipeline.kernel import Counts, Floats


def anneal(
    begin: Counts,
    code: Counts,
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
    micro_batches: int,
    steps: int,
    warm_s: float,
    cold_s: float,
    seed: int,
    best_code: Counts,
) -> float:
    """Least makespan found, seconds; −1 if `code` itself comes to a stand. Fills `best_code`.

    Rank r runs code[begin[r]] … code[begin[r + 1] − 1]; a code is kind × stages + stage, its kind F 0, I 1, W 2, its
    micro-batch the next of that kind and stage. The others are as in `list_kernel.list_schedule`; on a link only one
    rank may send. A step moves an action by up to six places, or exchanges it with one up to six places away, and
    is kept by Metropolis' rule at a temperature that falls geometrically from `warm_s` to `cold_s`. Judged is the
    makespan, and a fiftieth of when on the average stage the last I, the last W and (× 0.3) the middle I end:
    most moves leave the makespan as it is.
    """
    stages, ranks, total = rank_of.size, room.size, code.size
    arrival = np.empty((2, stages, micro_batches))
    done = np.empty((3, stages), dtype=np.int64)
    position = np.empty(ranks, dtype=np.int64)
    free = np.empty(ranks)
    link_free = np.empty(max(links, 1))
    tried, before = code.copy(), np.empty(7, dtype=np.int64)
    kept_cost = best = -1.0
    temperature, cooling = warm_s, (cold_s / warm_s) ** (1.0 / max(steps, 1))
    state = seed % 2147483646 + 1  # Park and Miller's generator
    for step in range(-1, steps):  # −1: as it came
        rank = low = high = 0
        legal = True
        if step >= 0:
            temperature *= cooling
            state = state * 48271 % 2147483647
            at = state % total
            while begin[rank + 1] <= at:
                rank += 1
            state = state * 48271 % 2147483647
            to = at + state % 13 - 6
            if to < begin[rank] or to >= begin[rank + 1] or tried[to] == tried[at]:
                continue
            low, high = min(at, to), max(at, to)
            before[: high - low + 1] = tried[low : high + 1]
            state = state * 48271 % 2147483647
            if state % 3 == 0:
                tried[at], tried[to] = tried[to], tried[at]
            else:
                way = 1 if to > at else -1
                for place in range(at, to, way):
                    tried[place], tried[place + way] = tried[place + way], tried[place]
            # No I before its F, no W before its I, and what is held fits.
            held = 0.0
            done[:] = 0
            for place in range(begin[rank], high + 1):
                kind, stage = tried[place] // stages, tried[place] % stages
                done[kind, stage] += 1
                if kind == 0:
                    held += inflight[stage]
                    legal = held <= room[rank] * (1 + 1e-12)
                else:
                    held += pending[stage] - inflight[stage] if kind == 1 else -pending[stage]
                    legal = done[kind, stage] <= done[kind - 1, stage]
                if not legal:
                    break
        left, makespan, late = total, 0.0, 0.0
        if legal:
            arrival[:] = -1.0
            for stage in range(stages):
                if preceding[stage] < 0:
                    arrival[0, stage, :] = 0.0
            done[:] = 0
            free[:] = 0.0
            link_free[:] = 0.0
            position[:] = begin[:ranks]
            going = True
            while going:  # every rank as far as it gets, until none gets further
                going = False
                for each in range(ranks):
                    while position[each] < begin[each + 1]:
                        kind, stage = tried[position[each]] // stages, tried[position[each]] % stages
                        m = done[kind, stage]
                        end = free[each]
                        if kind < 2:
                            if arrival[kind, stage, m] < 0:
                                break
                            end = max(end, arrival[kind, stage, m])
                        end += duration[kind, stage]
                        free[each], done[kind, stage] = end, m + 1
                        position[each] += 1
                        left -= 1
                        going = True
                        if kind > 0 and m + 1 == micro_batches:
                            late += end
                        if kind == 2:
                            continue
                        if kind == 1 and m == micro_batches // 2:
                            late += 0.3 * end
                        other = following[stage] if kind == 0 else preceding[stage]
                        if other >= 0:
                            there, over = end, link[kind, stage]
                            if over >= 0:
                                link_free[over] = max(end, link_free[over]) + transfer[kind, stage]
                                there = link_free[over] + latency[kind, stage]
                            arrival[kind, other, m] = there
                        elif kind == 0:
                            arrival[1, stage, m] = end  # the loss is there
                    makespan = max(makespan, free[each])
        cost = makespan + 0.02 * late / stages
        if step < 0:
            if left:
                return -1.0
            kept_cost, best = cost, makespan
            best_code[:] = tried
            continue
        kept = left == 0
        if kept and cost > kept_cost:
            state = state * 48271 % 2147483647
            kept = np.exp((kept_cost - cost) / temperature) * 2147483647.0 > state
        if kept:
            kept_cost = cost
            if makespan < best * (1 - 1e-12):
                best = makespan
                best_code[:] = tried
        else:
            tried[low : high + 1] = before[: high - low + 1]
    return best
