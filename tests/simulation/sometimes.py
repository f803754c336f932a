"""The rare branches that a set of runs must have reached: without them it would have proved nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SOMETIMES = (
    "a deposed leader was fenced off",
    "a deposed leader was fenced off while it applied a plan",
    "a gang let its stages go because one could not start",
    "a job was cancelled while cancelled",
    "a job was cancelled while stopping",
    "a lease ran out and the workers were stopped",
    "a lost node came back",
    "a node came back within grace and kept its work",
    "a node was lost",
    "a project with a quota of money was given GPUs",
    "a project with a quota was given GPUs",
    "a place was promised",
    "a plan was stale",
    "a process was lost with its node",
    "a promise was broken",
    "a repeated submission was answered with the first job",
    "a restarted agent adopted a running worker",
    "a stage could not be started",
    "a stream went on where it was broken off",
    "a token to join with was used",
    "a torn journal was read again",
    "a worker was killed after its grace",
    "an agent died between its intent to start a stage and the start",
    "an agent died right after it had started a stage",
    "an agent met a full disk and went on",
    "an agent was refused: another agent's",
    "an agent was refused: expired",
    "an agent was refused: revoked",
    "another replica took the lead",
    "reports that came twice were stored once",
    "the leader changed while a plan was made",
)


def missed(reached: Iterable[Mapping[str, int]]) -> list[str]:
    """The branches that none of the runs has reached."""
    seen = {branch for each in reached for branch, times in each.items() if times}
    return [branch for branch in SOMETIMES if branch not in seen]
