"""Atlas's choice of data centres as a placement (arXiv 2411.14458, Algorithm 1): the most GPUs first, filled greedily.

Algorithm 1 sorts the data centres by their GPUs, and for every degree of data parallelism fills one after the other
with pipeline partitions, estimates the time of an iteration, and keeps the best. Here the GPUs of a stage are what the
job asks for, so a smaller degree does not turn into more stages, and what is left to scan is over how many regions the
job stretches: for each beginning of the sorted list, as many stages as it holds (up to K*), and of these the fastest by
the timeline on what its cuts would be granted. So a further region is entered only where it pays, as in the original.

Its sharing of bandwidth in time among the replicas of a job is a matter of the data plane, and not modelled: a cut gets
what it needs or what there is, as with the CR policies. Jobs come by the user's priority, then by arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from scheduler.evaluate import Evaluation
from scheduler.options import Candidate, Demand
from scheduler.policies.baselines import as_available, by_room, chain_from, fill, holds_least, single_types
from scheduler.policies.proposal import (
    Proposal,
    cuts_sentence,
    plural,
    prices_sentence,
    schedule_sentence,
    sentence,
    stages_sentence,
)
from scheduler.policies.world import World


def place(demand: Demand, world: World) -> Proposal | None:
    """The fastest over all beginnings of the sorted list; of equals the fewest stages."""
    best: tuple[tuple[float, int, int], Candidate, Evaluation] | None = None
    for number, candidate in enumerate(single_types(demand)):
        for evaluation in _scanned(demand, candidate, world):
            key = (evaluation.iteration_s, evaluation.placement.stages, number)
            if best is None or key < best[0]:
                best = (key, candidate, evaluation)
    if best is None:
        return None
    _, candidate, evaluation = best
    regions = evaluation.placement.regions
    why = sentence(
        stages_sentence(candidate, evaluation),
        f"over {evaluation.placement.describe()}: the fastest of all beginnings of the list of regions by free GPUs, "
        f"{plural(len(regions), 'region')}",
        cuts_sentence(evaluation),
        schedule_sentence(evaluation),
        prices_sentence(world, regions),
    )
    return Proposal(evaluation, why)


def _scanned(demand: Demand, candidate: Candidate, world: World) -> Iterator[Evaluation]:
    """A placement for each beginning of the first chain, by free GPUs, that holds the job at all."""
    offers = world.offers(demand, candidate)
    if not holds_least(demand, candidate, offers):
        return
    counts = candidate.stage_counts
    starts = [offer for offer in offers if offer.region in demand.begins]
    for start in by_room(starts, candidate.most, dict.fromkeys(starts, math.inf)):
        chain = chain_from(demand, candidate, world, offers, start, by_room, counts.need_bps[0])
        found = False
        for length in range(1, len(chain) + 1):
            index = min(candidate.cap, counts.index(sum(offer.slots for offer in chain[:length])))
            shares = fill(chain[:length], counts.counts[index]) if index >= 0 else None
            evaluation = None if shares is None else world.place(demand, shares, as_available(world))
            if evaluation is not None:
                found = True
                yield evaluation
        if found:
            return
