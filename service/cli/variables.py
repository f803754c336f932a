"""The BACE_* variables that some part of bacepipe reads or sets: what is none of them is told, not passed over."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping

from rich.text import Text

from service.cli.output import error_console

PREFIX = "BACE_"
COMMANDS = frozenset({"BACE_CA_FILE", "BACE_DATA_DIR", "BACE_TOKEN", "BACE_URL", "BACE_WORKER_ENV"})
"""Of the commands and the agent."""
_OTHERS = re.compile(
    r"BACE_(ALLOCATION_ID|CHECKPOINT_(EVERY|KEEP|URI)|DEVICE|GENERATION|JOB_(ID|NAME)|(DATA|TENSOR)_(RANK|SIZE)|PLAN"
    r"|PEER_TIMEOUT|REGIONS?|RENDEZVOUS_TIMEOUT|REPORT|RESUME_STEP|SCHEDULE|STAGES?|STEPS|WINDOW|WORK_DIR"
    r"|SECRET_.*|TEST_.*)"
)
"""What a job's processes find set, and may call us with; the secrets of jobs on an agent; what tests run against."""


def unread(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the environment that nothing reads, each with the nearest name that something does (or '')."""
    from service.settings import Settings  # a tenth of a second, which most commands can do without

    known = COMMANDS | {PREFIX + name.upper() for name in Settings.model_fields}
    names = sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in known and not _OTHERS.fullmatch(name)
    )
    return {name: next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.8)), "") for name in names}


def warn_of_unread() -> None:
    """Tell them on standard error."""
    for name, nearest in unread(os.environ).items():
        meant = f": did you mean {nearest}?" if nearest else "."
        error_console().print(Text(f"Warning: {name} is set, and nothing reads it{meant}", style="yellow"))
