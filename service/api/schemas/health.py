"""Whether the server lives and is ready."""

from __future__ import annotations

from service.api.schemas.base import Answer, example


class Alive(Answer):
    """The process answers."""

    model_config = example({"status": "ok"})

    status: str


class Readiness(Answer):
    """`ready` if all of the others are true."""

    model_config = example(
        {"ready": True, "database": True, "schema_current": True, "leader": True, "clock": True}
    )

    ready: bool
    database: bool
    """It answers."""
    schema_current: bool
    """Its migrations are those that this program knows."""
    leader: bool
    """Some server's lease to run the control loops is good."""
    clock: bool
    """Its clock is within a second of the database's."""
