"""`python -m tests.chaos --minutes 30 --database sqlite --seed 1`: real programs, real faults; 1 if a rule broke."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Plan, run


def main() -> int:
    """Run, print the table and one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of faults; healing comes on top")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the logs and the witnesses, and say where")
    given = parser.parse_args()
    postgres_url = os.environ.get("BACE_TEST_POSTGRES_URL", "")
    if given.database == "postgres" and not postgres_url:
        parser.error("--database postgres needs BACE_TEST_POSTGRES_URL, an administrator's URL of a server")
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="bace-chaos-"))
    try:
        outcome = run(Plan(given.minutes, given.database, given.seed, postgres_url), folder)
    finally:
        if given.keep:
            print(f"logs and witnesses: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(outcome.table())
    violations = outcome.verdict.violations()
    for rule, which in violations.items():
        for each in which:
            print(f"BROKEN {rule}: {each}")
    print(outcome.line())
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
