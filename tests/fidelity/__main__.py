"""`python -m tests.fidelity`: predicted against measured iterations; a line of JSON a case, and one for all of them."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.cli.stack import interruptible
from service.cli.testbed.bed import Bed, BedError, bed_of
from service.cli.testbed.measure import message_s
from tests.fidelity.cases import ALONE, CASES, SLACK, STRICT, Case
from tests.fidelity.gang import GangError, become, measured_iterations, network
from tests.fidelity.prediction import Measured, Prediction, predict
from tests.gangs import Zygote

GOALS: tuple[Callable[[Mapping[str, float]], bool], ...] = (
    lambda summary: summary["mean_error"] <= 0.05,
    lambda summary: summary["worst_error"] <= 0.10,
    lambda summary: summary.get("slack_gain", 1.6) >= 1.6,
    lambda summary: summary["left_out"] == 0,
)
BUDGET_S = 400.0
"""No case is begun later than that."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case."""

    case: Case
    parts: Measured
    prediction: Prediction
    measured_s: list[float]

    @property
    def error(self) -> float:
        """Of the prediction, relative to the median measured."""
        return self.prediction.iteration_s / statistics.median(self.measured_s) - 1

    def line(self) -> dict[str, object]:
        """For people and programs."""
        case = self.case
        return {
            "stages": case.stages,
            "cut": case.cut,
            "schedule": case.schedule,
            "update_every": case.every,
            "latency_ms": case.latency_ms,
            "mbps": case.mbps,
            "message_bytes": case.message_bytes,
            "caps": self.prediction.caps,
            "measured_latency_ms": round(self.parts.latency_s * 1e3, 2),
            "measured_transfer_ms": round(self.parts.transfer_s * 1e3, 2),
            "predicted_s": round(self.prediction.iteration_s, 4),
            "measured_s": [round(each, 4) for each in self.measured_s],
            "error": round(self.error, 4),
            "load": round(os.getloadavg()[0], 1),
        }


def overhead_s(bed: Bed, zygote: Zygote) -> float:
    """What a worker takes for a micro-batch beside the work it is told to do, as measured on a stage alone."""
    told = predict(ALONE, Measured(0.0, 0.0, 0.0))
    took = measured_iterations(bed, ALONE, told, zygote)
    return (statistics.median(took) - told.iteration_s) / ALONE.micro_batches


def run_case(bed: Bed, case: Case, overhead: float, zygote: Zygote) -> Outcome:
    """Predict it from what its links, and a stage alone, are measured to be; then run it."""
    become(bed, case)
    link = bed.network.links[0]  # all links of a case are alike
    latency_s = message_s(bed, link, 1)
    transfer_s = message_s(bed, link, case.message_bytes) - latency_s
    parts = Measured(overhead, latency_s, transfer_s)
    prediction = predict(case, parts)
    measured_s = measured_iterations(bed, case, prediction, zygote)
    return Outcome(case, parts, prediction, measured_s)


def main() -> int:
    """Run all cases. 1 where the predictions are further off than they are to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cases, from 0")
    given = parser.parse_args()
    cases = CASES if given.only is None else [CASES[number] for number in given.only]
    begin_s = time.monotonic()
    zygote = Zygote()
    outcomes: list[Outcome] = []
    try:
        with interruptible(), bed_of(network(max(CASES, key=lambda case: len(case.regions)).regions)) as bed:
            overhead = overhead_s(bed, zygote)
            for case in cases:
                if time.monotonic() > begin_s + BUDGET_S:
                    break
                outcomes.append(run_case(bed, case, overhead, zygote))
                print(json.dumps(outcomes[-1].line()), flush=True)
    except (BedError, GangError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        zygote.close()
    summary = {**summary_of(outcomes, overhead), "left_out": len(cases) - len(outcomes)}
    print(json.dumps(summary))
    return int(not all(goal(summary) for goal in GOALS))


def summary_of(outcomes: Sequence[Outcome], overhead: float) -> dict[str, float]:
    """The last line."""
    errors = [abs(outcome.error) for outcome in outcomes]
    took = {outcome.case: statistics.median(outcome.measured_s) for outcome in outcomes}
    gain = {"slack_gain": round(took[STRICT] / took[SLACK], 2)} if {STRICT, SLACK} <= took.keys() else {}
    return {
        "cases": len(errors),
        "mean_error": round(statistics.mean(errors), 4),
        "worst_error": round(max(errors), 4),
        "overhead_ms": round(overhead * 1e3, 2),
        **gain,
    }


if __name__ == "__main__":
    sys.exit(main())
