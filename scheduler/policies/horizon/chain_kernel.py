"""The search for the best chain of regions as loops over numbers, to be compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def each_better(
    slots: Integers,
    stages: Integers,
    time_score: Floats,
    bill: Floats,
    begin: Floats,
    breaks: Flags,
    need_bps: Integers,
    widths: Integers,
    boundary_bits: float,
    delay_weight: Floats,
    egress_weight: float,
    latency: Floats,
    egress: Floats,
    link_bps: Floats,
    access_bps: Floats,
    longest: int,
    budget: int,
    bound: float,
) -> tuple[Floats, Integers, Integers, Integers]:
    """Of numbers of stages, the one that could be best first, the best chain of each that is better than all before.

    By rung: its `stages`, ascending, its `time_score`, what a cut of it needs, and what a second of a cut's delay is
    worth. [region, rung]: the `bill` of all stages there, and whether they would break a limit of the job there (empty:
    nothing does). A cut is granted its need times each of the `widths` in turn. All else is as in `run`, with up to
    `budget` nodes for each search. The answer: scores, rungs, widths, and chains filled up with −1.
    """
    regions, rungs = slots.size, stages.size
    scores, found = np.empty(rungs * widths.size), 0
    rung_of, width_of = np.empty(scores.size, dtype=np.int64), np.empty(scores.size, dtype=np.int64)
    paths = np.full((scores.size, regions), -1)
    usable = np.flatnonzero(slots > 0)
    least = np.full(rungs, np.inf)
    if usable.size >= 2:
        for rung in range(rungs):
            cheapest = first = np.inf
            for region in usable:
                cheapest, first = min(cheapest, bill[region, rung]), min(first, begin[region])
            least[rung] = time_score[rung] + cheapest + first
    if least.min() >= bound:
        return scores[:0], rung_of[:0], width_of[:0], paths[:0]
    total = 0
    for region in ascending(slots)[max(0, regions - longest) :]:
        total += slots[region]
    pair = np.empty((regions, regions))
    for a in range(regions):
        for b in range(regions):
            pair[a, b] = min(link_bps[a, b], link_bps[b, a], access_bps[a], access_bps[b])
    for rung in ascending(least):
        if least[rung] >= bound:
            break
        if not 2 <= stages[rung] <= total or (breaks.size and breaks[usable, rung].all()):
            continue
        rate = bill[:, rung] / stages[rung]
        for width in widths:
            need = float(need_bps[rung] * width)
            cost, path, _ = run(
                slots,
                rate,
                latency,
                egress,
                pair,
                access_bps,
                begin,
                need,
                boundary_bits / need,
                delay_weight[rung],
                egress_weight,
                stages[rung],
                longest,
                budget,
                bound - time_score[rung],
            )
            if path.size < 2:
                continue
            bound = time_score[rung] + cost
            scores[found], rung_of[found], width_of[found] = bound, rung, width
            paths[found, : path.size] = path
            found += 1
    return scores[:found], rung_of[:found], width_of[:found], paths[:found]


def ascending(values: Floats | Integers) -> Integers:
    """Where the values stand, least first, equal ones in their order. Compiles faster than NumPy's own."""
    places = np.empty(values.size, dtype=np.int64)
    for place in range(values.size):
        at = place
        while at > 0 and values[places[at - 1]] > values[place]:
            places[at] = places[at - 1]
            at -= 1
        places[at] = place
    return places


def run(
    slots: Integers,
    rate: Floats,
    latency: Floats,
    egress: Floats,
    pair: Floats,
    access: Floats,
    begin: Floats,
    need: float,
    transfer: float,
    delay_weight: float,
    egress_weight: float,
    stages: int,
    longest: int,
    budget: int,
    bound: float,
) -> tuple[float, Integers, int]:
    """The cheapest chain that holds `stages` stages, its cost, and how many nodes of the search were left.

    By region: `slots` free for a stage each, `rate` the cost of a stage there. A cut between two regions is possible
    where `pair` has the bandwidth it `need`s, inside a chain where both cuts of a region fit in its `access`; it costs
    delay_weight·(latency + transfer) + egress_weight·egress. To begin at a region costs `begin`, infinite where a chain
    may not. The chain has at most `longest` regions and costs less than `bound`; it is empty where there is none. A
    chain costs its beginning, its cuts, and for one stage in each region and the rest where it is cheapest their rates.
    Depth first, cheapest cut first, cut off where beginning, cuts and the cheapest slots anywhere already cost too
    much: the answer is exact unless `budget` nodes were not enough.
    """
    regions = slots.size
    longest = min(longest, regions, stages)
    by_rate = ascending(rate)
    # The cheapest that so many stages could stand, whatever the chain.
    floor, left = 0.0, stages
    for region in by_rate:
        here = min(left, slots[region])
        floor += here * rate[region]
        left -= here
    best, best_path = bound, np.zeros(0, dtype=np.int64)
    if left > 0 or begin.min() + floor >= best:
        return best, best_path, budget
    by_start = ascending(begin + rate)
    cut = np.full((regions, regions), np.inf)
    order = np.empty(
        (regions, regions), dtype=np.int64
    )  # of the neighbours of each region, once it is looked at
    is_ordered = np.zeros(regions, dtype=np.bool_)
    path = np.zeros(longest, dtype=np.int64)
    position = np.zeros(longest, dtype=np.int64)  # of the next neighbour to try after path[depth]
    spent = np.zeros(longest)  # cost of the cuts up to path[depth]
    room = np.zeros(longest, dtype=np.int64)
    used = np.zeros(regions, dtype=np.bool_)
    for start in by_start:
        if slots[start] < 1 or begin[start] + floor >= best:
            continue
        depth = 0
        path[0], position[0], spent[0], room[0] = start, 0, begin[start], slots[start]
        used[start] = True
        entered = True
        while depth >= 0:
            if entered:
                budget -= 1
                if room[depth] >= stages:
                    cost, rest = spent[depth], stages - depth - 1
                    for each in range(depth + 1):
                        cost += rate[path[each]]
                    for region in by_rate:
                        if used[region]:
                            here = min(rest, slots[region] - 1)
                            cost += here * rate[region]
                            rest -= here
                    if cost < best:
                        best, best_path = cost, path[: depth + 1].copy()
                entered = False
            if budget <= 0:
                return best, best_path, 0
            end = path[depth]
            following = -1
            if depth + 1 < longest and (depth == 0 or access[end] >= 2 * need):
                if not is_ordered[end]:
                    is_ordered[end] = True
                    for b in range(regions):
                        if end != b and slots[b] > 0 and pair[end, b] >= need:
                            delay = latency[end, b] + transfer
                            cut[end, b] = delay_weight * delay + egress_weight * egress[end, b]
                    order[end] = ascending(cut[end])
                while position[depth] < regions:
                    candidate = order[end, position[depth]]
                    position[depth] += 1
                    if spent[depth] + cut[end, candidate] + floor >= best:
                        position[depth] = regions  # all later ones cost as much or more
                        break
                    if slots[candidate] > 0 and not used[candidate]:
                        following = candidate
                        break
            if following < 0:
                used[end] = False
                depth -= 1
                continue
            depth += 1
            path[depth], position[depth] = following, 0
            spent[depth] = spent[depth - 1] + cut[end, following]
            room[depth] = room[depth - 1] + slots[following]
            used[following] = True
            entered = True
    return best, best_path, budget
