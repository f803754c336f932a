"""What quotas make a job wait for, in words and numbers."""

from __future__ import annotations

from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import Quota
from scheduler.units import format_usd

QUOTA_CODES = frozenset({ReasonCode.QUOTA_GPUS, ReasonCode.QUOTA_SPEND, ReasonCode.QUOTA_TOO_SMALL})


def too_small(project: str, gpus: int, least: int) -> Reason:
    """Of a job that its tenant's quota can never hold."""
    detail = f"needs at least {least} GPUs, project {project} may hold {gpus}: it cannot start unless that quota grows"
    return Reason(ReasonCode.QUOTA_TOO_SMALL, detail, needed=least, available=gpus)


def no_gpus(project: str, gpus: int, room: int, needed: int) -> Reason:
    """Of a job whose tenant holds too much for it to start."""
    detail = f"needs {needed} GPUs; of the {gpus} that project {project} may hold {max(0, room)} are left"
    return Reason(ReasonCode.QUOTA_GPUS, detail, needed=needed, available=max(0, room))


def no_money(project: str, quota: Quota, left_usd: float, needed_usd: float | None) -> Reason:
    """Of a job whose tenant's month has no room for what it would cost; None: there is nothing left at all."""
    limit, spent = format_usd(quota.usd_per_month or 0.0), format_usd(quota.spent_usd)
    cost = "" if needed_usd is None else f"would cost {format_usd(needed_usd)} until the month ends; "
    detail = (
        f"{cost}of the {limit} a month of project {project} {spent} are spent, and with what its running jobs will "
        f"cost {format_usd(max(0.0, left_usd))} are left"
    )
    return Reason(ReasonCode.QUOTA_SPEND, detail, needed=needed_usd, available=max(0.0, left_usd))
