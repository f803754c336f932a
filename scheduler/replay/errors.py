"""What stops a replay."""

from __future__ import annotations

from scheduler.errors import SchedulerError


class ReplayError(SchedulerError):
    """The replay cannot go on with these inputs; the message says which and what would be right."""

    code = "replay_error"
