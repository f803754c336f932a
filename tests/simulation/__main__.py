"""`python -m tests.simulation`: runs seeds, and prints a line of JSON for each and one for all.

Exit code 1 where a rule was broken: the plan is made as small as it gets, printed, and kept in the corpus.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.simulation import corpus
from tests.simulation.run import Outcome, Plan, run
from tests.simulation.sometimes import missed


def main(arguments: list[str] | None = None) -> int:
    """Runs what it is told."""
    options = _parser().parse_args(arguments)
    first, count = options.seeds
    outcomes = []
    for seed in range(first, first + count):
        outcome = run(Plan(seed, options.seconds, options.agents), keep_lines=options.trace is not None)
        print(json.dumps(outcome.document()), flush=True)
        outcomes.append(outcome)
        if options.trace is not None:
            with open(options.trace, "w", encoding="utf-8") as file:
                file.writelines(outcome.lines or ())
        if outcome.violations and options.minimise:
            _tell(outcome)
    violations = sum(len(outcome.violations) for outcome in outcomes)
    summary = {
        "seeds": count,
        "simulated_s": round(sum(outcome.simulated_s for outcome in outcomes), 1),
        "wall_s": round(sum(outcome.wall_s for outcome in outcomes), 1),
        "cpu_s": round(sum(outcome.cpu_s for outcome in outcomes), 1),
        "violations": violations,
        "sometimes_missed": missed(outcome.reached for outcome in outcomes),
    }
    print(json.dumps(summary), flush=True)
    return 1 if violations else 0


def _tell(outcome: Outcome) -> None:
    print("".join(outcome.last_lines), file=sys.stderr)
    smallest = corpus.smallest(outcome)
    print(f"kept as {corpus.keep(smallest)}", file=sys.stderr)


def _seeds(text: str) -> tuple[int, int]:
    first, _, count = text.partition(":")
    try:
        return int(first), int(count or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not valid: expected FIRST:COUNT, such as 1:40"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=(1, 1), metavar="FIRST:COUNT")
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated, before all faults heal")
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--trace", metavar="FILE", help="write the history of the last seed there")
    parser.add_argument(
        "--no-minimise", dest="minimise", action="store_false", help="leave a broken plan as it is"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
