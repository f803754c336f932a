"""How far this process's clock is from the database's, which is the same for all servers that share it.

One server stamps a heartbeat, another judges the node's silence: their clocks must agree far better than the margin
between the end of a lease and the loss of a node. SQLite has one server, hence one clock.
"""

from __future__ import annotations

from sqlalchemy import text

from service.db.session import Session

MAX_OFFSET_S = 1.0
"""Of a server that may lead, and is ready. Two of them are then at most twice as far apart."""

_NOW = text("SELECT extract(epoch FROM clock_timestamp())")


def offset_s(session: Session, now_s: float) -> float:
    """By how much the clock that says `now_s` is ahead, in seconds; too little by the way to the database."""
    if session.dialect != "postgresql":
        return 0.0
    return now_s - float(session.scalar(_NOW) or now_s)
