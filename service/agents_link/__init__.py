"""The server's side of the agents' wire: joining, and the one round trip of a heartbeat."""

from __future__ import annotations

from service.agents_link.heartbeat import heartbeat
from service.agents_link.join import join

__all__ = ["heartbeat", "join"]
