"""Why a process ended, where the agent or the supervisor knows it. Causes from the worker itself come beside these.

Only constants: supervisors import this and must start quickly.
"""

from __future__ import annotations

NOT_DESIRED = "not-desired"
"""The server no longer wants it to run."""
LEASE_EXPIRED = "lease-expired"
"""The server could not be reached for so long that it may have given the work away."""
AGENT_STOPPED = "agent-stopped"
"""The agent was ended and told to take its workers with it."""
SUPERVISOR_STOPPED = "supervisor-stopped"
"""Somebody sent the supervisor a SIGTERM."""
SUPERVISOR_LOST = "supervisor-lost"
"""The supervisor is gone without a word: killed, or the machine was restarted."""
NEVER_STARTED = "never-started"
"""The agent ended between its intent to start the process and the start."""
NOT_EXECUTABLE = "not-executable"
"""The program could not be executed."""
START_FAILED = "start-failed"
"""The supervisor could not be started."""
REFUSED = "refused"
"""This agent cannot mean to run it: hostile or foreign key, node or GPU."""
