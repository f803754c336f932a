"""A placement that a policy proposes for a job, with the sentence that tells the user why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.evaluate import Evaluation
from scheduler.options import Candidate
from scheduler.policies.world import World
from scheduler.units import format_bandwidth, format_bytes, format_time


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where a job would go, and in words why there."""

    evaluation: Evaluation
    why: str


def stages_sentence(candidate: Candidate, evaluation: Evaluation) -> str:
    """How many stages, and why not more."""
    stages = evaluation.placement.stages
    if stages == candidate.most and candidate.as_named:
        return f"{plural(stages, 'stage')}, the most that this policy gives to a job that names so many"
    if stages == candidate.most:
        return f"{plural(stages, 'stage')}, the most it may have on this cluster (K*)"
    return f"{plural(stages, 'stage')} of at most {candidate.most}: what can be had now"


def cuts_sentence(evaluation: Evaluation) -> str | None:
    """What every cut is granted; None inside one region."""
    cuts = evaluation.placement.cuts
    if not cuts:
        return None
    least = min(cut.bandwidth_bps for cut in cuts)
    return f"each cut is granted at least {format_bandwidth(least)} in both directions"


def schedule_sentence(evaluation: Evaluation) -> str | None:
    """What splitting its backwards or an order brings, and what it holds then; None where a window says it all."""
    whole, placement = evaluation.whole, evaluation.placement
    in_memory = f"in {format_bytes(max(evaluation.peak_bytes))} of a GPU at most"
    if placement.schedule.parts > 1:
        return f"{placement.schedule.value}: two parts of the model on every stage, {in_memory}"
    if whole is None:
        return None
    faster = whole.timeline.makespan_s / evaluation.timeline_s - 1
    return f"{placement.schedule.value}: {percent(faster)} {whole.schedule.value} here, {in_memory}"


def percent(faster: float) -> str:
    """How much faster or slower than what follows."""
    told = f"{abs(100 * faster):.1f}"
    return "as fast as" if told == "0.0" else f"{told} % {'faster' if faster > 0 else 'slower'} than"


def prices_sentence(world: World, regions: Iterable[str]) -> str:
    """The prices of now in the regions that were chosen, and which of them nobody knows."""
    told = []
    for region in regions:
        price = world.prices_usd_per_kwh[region]
        pue = world.cluster.regions[region].pue
        if price is None:
            since_s = world.stale_since_s.get(region)
            until = "" if since_s is None else f" (the last one is of {format_time(since_s)})"
            told.append(f"the price in {region} is unknown{until}, so it came last")
        else:
            told.append(f"{region} {price:.4g} $/kWh × PUE {pue:.3g}")
    return ", ".join(told)


def sentence(*parts: str | None) -> str:
    """The parts that there are, as one sentence."""
    text = "; ".join(part for part in parts if part)
    return text[:1].upper() + text[1:] + "."


def plural(count: int, word: str) -> str:
    """`1 stage`, `2 stages`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
