"""What a job may be given where a mechanism of horizon is off: fewer regions, its own stages, no other place."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.options import Demand
from scheduler.policies.horizon.config import HorizonConfig, StageChoice
from scheduler.policies.narrowed import only_in, with_stages, within_regions
from scheduler.snapshot import StateSpan


def as_configured(
    demand: Demand, named_stages: int | None, state: Sequence[StateSpan], config: HorizonConfig
) -> Demand:
    """The demand of a job that names so many stages and whose state lies there, as far as the configuration goes."""
    if config.most_regions is not None:
        demand = within_regions(demand, config.most_regions)
    if config.stages is StageChoice.NAMED and named_stages is not None:
        demand = with_stages(demand, named_stages)
    if state and not config.migrates:
        demand = only_in(demand, frozenset(span.region for span in state))
    return demand
