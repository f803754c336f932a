"""What stops a replay."""

from __future__ import annotations

from scheduler.errors import SchedulerError


class ReplayError(SchedulerError):
    """The replay cannot go on with these inputs; the message says which and what would be right."""

    code = "replay_error"


class PricesEndError(ReplayError):
    """A job runs on beyond the last price of a region: the scenario is at fault, not the replay."""

    code = "prices_end"
