"""Plans that once broke a rule: kept as files, and run again by the tests for ever."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.simulation.faults import KINDS
from tests.simulation.run import Outcome, Plan, run

FOLDER = Path(__file__).parent / "corpus"
SHORTEST_S = 10.0


def smallest(broken: Outcome) -> Outcome:
    """A plan with fewer faults that breaks the same rule, as far as leaving one out at a time leads.

    The time after which it broke is not simulated; what comes before it is needed.
    """
    rule = broken.violations[0].rule
    best = _again(_cut(broken.plan, broken.violations[0].at_s), rule) or broken
    for kind in sorted(best.plan.faults):
        without = replace(best.plan, faults=best.plan.faults - {kind})
        best = _again(without, rule) or best
    return _again(_cut(best.plan, best.violations[0].at_s), rule) or best


def keep(outcome: Outcome, folder: Path = FOLDER) -> Path:
    """Writes the plan with what it broke; the file's name says both."""
    folder.mkdir(exist_ok=True)
    plan, violation = outcome.plan, outcome.violations[0]
    words = "-".join(violation.rule.lower().replace("/", " ").split())
    path = folder / f"{words}-{plan.seed}.json"
    document = {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "agents": plan.agents,
        "faults": sorted(plan.faults),
        "broke": {"rule": violation.rule, "detail": violation.detail, "at_s": violation.at_s},
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def kept(folder: Path = FOLDER) -> Iterable[tuple[Path, Plan]]:
    """The plans of the corpus, by name."""
    for path in sorted(folder.glob("*.json")):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        faults = frozenset(document["faults"]) & frozenset(KINDS)
        yield path, Plan(document["seed"], document["seconds"], document["agents"], faults)


def _again(plan: Plan, rule: str) -> Outcome | None:
    """What came of it, if it broke the same rule."""
    outcome = run(plan)
    return outcome if any(each.rule == rule for each in outcome.violations) else None


def _cut(plan: Plan, at_s: float) -> Plan:
    return replace(plan, seconds=min(plan.seconds, max(SHORTEST_S, at_s)))
