"""`python -m tests.simulation`: runs seeds, and prints a line of JSON for each and one for all.

Exit code 1 where a rule was broken: the plan is made as small as it gets, printed, and kept in the corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation import corpus
from tests.simulation.run import Outcome, Plan, run
from tests.simulation.sometimes import missed


def main(arguments: list[str] | None = None) -> int:
    """Runs what it is told."""
    options = _parser().parse_args(arguments)
    if options.sum is not None:
        return _told([line for path in options.sum for line in _lines_in(path)])
    first, count = options.seeds
    lines = _lines_of(options.out, options.seconds, options.agents)
    for seed in range(first, first + count):
        if seed in lines:
            continue
        outcome = run(Plan(seed, options.seconds, options.agents), keep_lines=options.trace is not None)
        lines[seed] = outcome.document()
        print(json.dumps(lines[seed]), flush=True)
        if options.out is not None:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(lines[seed]) + "\n")
        if options.trace is not None:
            with open(options.trace, "w", encoding="utf-8") as file:
                file.writelines(outcome.lines or ())
        if outcome.violations and options.minimise:
            _tell(outcome)
    return _told([line for seed, line in lines.items() if first <= seed < first + count])


def _told(lines: Sequence[Mapping[str, Any]]) -> int:
    summary = _sum(lines)
    print(json.dumps(summary), flush=True)
    return 1 if summary["violations"] else 0


def _lines_of(path: str | None, seconds: float, agents: int) -> dict[int, dict[str, Any]]:
    """By seed, what has been run already of the same size."""
    lines = _lines_in(path) if path is not None and os.path.exists(path) else []
    return {line["seed"]: line for line in lines if (line["seconds"], line["agents"]) == (seconds, agents)}


def _lines_in(path: str) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _sum(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One line for all."""
    times = {name: round(sum(line[name] for line in lines), 1) for name in ("simulated_s", "wall_s", "cpu_s")}
    by_agents: defaultdict[int, float] = defaultdict(float)
    for line in lines:
        by_agents[line["agents"]] += line["simulated_s"]
    return {
        "seeds": len(lines),
        **times,
        "simulated_s_by_agents": {agents: round(by_agents[agents], 1) for agents in sorted(by_agents)},
        "faults": sum(sum(line["faults"].values()) for line in lines),
        "commits": sum(line["commits"] for line in lines),
        "violations": sum(len(line["violations"]) for line in lines),
        "sometimes_missed": missed(line["reached"] for line in lines),
    }


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
    parser.add_argument(
        "--out", metavar="FILE", help="append the lines there; seeds that it has are left out"
    )
    parser.add_argument("--sum", nargs="+", metavar="FILE", help="run nothing: the sum of the lines in these")
    parser.add_argument("--trace", metavar="FILE", help="write the history of the last seed there")
    parser.add_argument(
        "--no-minimise", dest="minimise", action="store_false", help="leave a broken plan as it is"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
