"""horizon without one of its mechanisms: what each of them is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scheduler.policies.horizon.config import HorizonConfig, StageChoice

VARIANTS: Final[Mapping[str, HorizonConfig]] = MappingProxyType(
    {
        "no-resize": HorizonConfig(resizes=False),
        "no-ejection": HorizonConfig(ejects=False),
        "no-preemption": HorizonConfig(resizes=False, ejects=False),
        "no-crowding": HorizonConfig(crowding=0.0),
        "no-correction": HorizonConfig(estimate_sigma=0.0),
        "no-rollouts": HorizonConfig(rollout_jobs=0),
        "no-ageing": HorizonConfig(aging=0.0),
        "no-pressure": HorizonConfig(idle_part=1.0),
        "no-reservation": HorizonConfig(patience_s=math.inf),
        "no-limit": HorizonConfig(most_slower=math.inf, most_slower_egress=math.inf),
        "no-forecast": HorizonConfig(forecasts=False),
        "no-migration": HorizonConfig(migrates=False),
        "no-chains": HorizonConfig(most_regions=1),
        "no-apart": HorizonConfig(stays_apart=False),
        "one-cut": HorizonConfig(most_regions=2),
        "named-stages": HorizonConfig(stages=StageChoice.NAMED),
        "most-stages": HorizonConfig(stages=StageChoice.MOST),
        "fifo-order": HorizonConfig(shortest_first=False),
        "no-joint": HorizonConfig(joint_jobs=0),
    }
)
"""Configurations of horizon by name, each with one mechanism off."""
