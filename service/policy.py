"""The policy that decides in this service, as the settings name it."""

from __future__ import annotations

from scheduler.errors import InvalidValueError
from scheduler.objective import Objective
from scheduler.policies import MAIN, STUDIES, PolicyConfig
from service.settings import Settings


def policy_of(settings: Settings) -> PolicyConfig:
    """Raises InvalidValueError for a name that no policy has, or one that is only there to be compared with."""
    if settings.policy in STUDIES:
        raise InvalidValueError(
            "policy", settings.policy, f"one of {', '.join(MAIN)}; others are for studies"
        )
    return PolicyConfig(
        name=settings.policy,
        strict=settings.strict,
        seed=settings.seed,
        objective=Objective(settings.objective_weight_jct, settings.objective_cheapest_within),
    )
