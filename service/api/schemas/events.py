"""The history: what happened to jobs, allocations, nodes, regions, links, prices and tokens."""

from __future__ import annotations

from typing import Any

from service.api.schemas.base import Answer, example


class Event(Answer):
    """One change. `seq` grows in the order of commits: a reader goes on after the last one it has seen."""

    model_config = example(
        {
            "seq": 118,
            "project": "nlp",
            "at_s": 1764460804.2,
            "kind": "job.running",
            "object_kind": "job",
            "object_id": "job-01kb9wzx7c2f4h6j8k0m2n4p6q",
            "actor": "progress",
            "data": {"from": "starting", "to": "running", "version": 4},
        }
    )

    seq: int
    project: str
    at_s: float
    kind: str
    object_kind: str
    object_id: str
    actor: str
    data: dict[str, Any]
