"""Why a job waits where its tenant has a quota: because of that, or as `explain` says on what the quotas leave."""

from __future__ import annotations

from dataclasses import replace

from scheduler.explain import Explanation, explain
from scheduler.plan import Hold
from scheduler.policies import PolicyConfig, asked
from scheduler.policies.quota_reasons import QUOTA_CODES
from scheduler.policies.quotas import asked_within
from scheduler.reasons import ReasonCode
from scheduler.snapshot import Snapshot


def explain_within_quotas(snapshot: Snapshot, config: PolicyConfig, job_id: str) -> Explanation:
    """Explains one waiting job of a snapshot under a policy. Raises InvalidValueError if no such job waits.

    `blocking_jobs` of one that its quota keeps waiting are the running jobs of its tenant.
    """
    jobs = {each.spec.job_id: each for each in snapshot.waiting}
    if not snapshot.quotas or job_id not in jobs:
        return explain(snapshot, config, job_id)
    plan, seen = asked_within(snapshot, lambda world: asked(world, config))
    decision = next(each for each in plan.decisions if each.job_id == job_id)
    if not isinstance(decision, Hold) or decision.reasons[0].code not in QUOTA_CODES:
        return explain(replace(seen, quotas={}), config, job_id)
    project, code = jobs[job_id].spec.project, decision.reasons[0].code
    return replace(
        explain(replace(snapshot, quotas={}), config, job_id),
        position=decision.position,
        queue_length=sum(isinstance(each, Hold) for each in plan.decisions),
        reasons=decision.reasons,
        would_start=(_fix(code, project),),
        blocking_jobs=tuple(
            each.spec.job_id
            for each in snapshot.running
            if each.spec.project == project and code is ReasonCode.QUOTA_GPUS
        ),
    )


def _fix(code: ReasonCode, project: str) -> str:
    if code is ReasonCode.QUOTA_TOO_SMALL:
        return f"if the quota of project {project} let it hold so many GPUs"
    if code is ReasonCode.QUOTA_SPEND:
        return f"when the month has ended (UTC), or with more money for project {project}"
    return f"when other jobs of project {project} end, or with a larger quota"
