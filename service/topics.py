"""What the bus can wake somebody for. A message has no content: whoever is woken looks into the database."""

from __future__ import annotations

PLANNING = "planning"
"""Something changed that a planning round should look at: a job, capacity, a price."""
EVENTS = "events"
"""Rows were added to the event log. The database adapter publishes it after such a commit."""
REPORTS = "reports"
"""Steps, log lines or process states were stored."""
