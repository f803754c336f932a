"""What ends a write of the control loops before it is made. Nothing is stored where one of these is raised."""

from __future__ import annotations

from service.errors import ServiceError


class FencedError(ServiceError):
    """Another epoch has begun: this instance leads no longer."""

    code = "fenced"


class WrongClockError(ServiceError):
    """This process's clock is too far from that of the other servers for it to lead."""

    code = "wrong_clock"


class StalePlanError(ServiceError):
    """What the plan was made against has changed: look again and decide anew."""

    code = "stale_plan"


class DoublePromiseError(ServiceError):
    """The plan would promise a GPU, a port or bandwidth twice: a defect of whoever made or checked it."""

    code = "double_promise"
