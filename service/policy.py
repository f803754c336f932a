"""The policy that decides in this service, as the settings name it."""

from __future__ import annotations

from scheduler import policies
from scheduler.errors import InvalidValueError
from scheduler.job import LIMITS
from scheduler.objective import Objective
from scheduler.policies import MAIN, STUDIES, PolicyConfig, plans_by_limits
from scheduler.spec.job import JobDocument
from service.settings import Settings


def policy_of(settings: Settings) -> PolicyConfig:
    """Raises InvalidValueError for a name that no policy has, or one that is only there to be compared with."""
    if settings.policy in STUDIES or settings.policy not in policies.POLICIES:
        raise InvalidValueError("BACE_POLICY", settings.policy, f"one of {', '.join(MAIN)}")
    return PolicyConfig(
        name=settings.policy,
        strict=settings.strict,
        seed=settings.seed,
        objective=Objective(settings.objective_weight_jct, settings.objective_cheapest_within),
    )


def not_planned_by(job: JobDocument, policy: str) -> list[str]:
    """The limits of the job that a policy does not plan by: they are kept with the job, and nothing more."""
    if plans_by_limits(policy):
        return []
    return [name for name in LIMITS if getattr(job, name) is not None]
