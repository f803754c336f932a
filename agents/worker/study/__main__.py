"""`python -m agents.worker.study --out outcomes.jsonl`: what each weight rule does to a toy's loss.

Prints every outcome as it comes, as a line of JSON, then the table. With `--out` outcomes are added to the file, and
those that it has are not run again.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch

from agents.worker.data import load_corpus
from agents.worker.study.cases import Case, OptimizerName, cases
from agents.worker.study.results import line, read, table
from agents.worker.study.training import MODEL, train_case

LEARNING_RATES: dict[OptimizerName, float] = {"adamw": 3e-3, "muon": 1e-2}
"""The best of three for synchronous training, on a seed that the study does not use."""


def main() -> None:
    """Run what is missing, and tell."""
    options = _options()
    torch.set_num_threads(1)
    rates = {name: rate * options.rate_factor for name, rate in LEARNING_RATES.items()}
    chosen = _chosen(options.only)
    outcomes = read(options.out) if options.out else []
    done = {(each.case, each.seed, each.updates, each.learning_rate) for each in outcomes}
    corpus = load_corpus(None, MODEL.seq_len)
    for seed in range(options.seeds):
        for case in chosen:
            learning_rate = rates[case.optimizer]
            if (case.name, seed, options.updates, learning_rate) in done:
                continue
            outcome = train_case(case, seed, options.updates, learning_rate, corpus)
            outcomes.append(outcome)
            print(line(outcome), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(line(outcome) + "\n")
    comparable = [
        each for each in outcomes if each.updates == options.updates and each.learning_rate in rates.values()
    ]
    print(table(chosen, comparable))


def _chosen(part: str) -> list[Case]:
    """The cases with this in their name, and the synchronous ones that they are compared with."""
    named = [case for case in cases() if part in case.name]
    optimizers = {case.optimizer for case in named}
    return [
        case for case in cases() if case in named or (case.is_synchronous and case.optimizer in optimizers)
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m agents.worker.study", description=__doc__)
    parser.add_argument("--seeds", type=_positive, default=5, help="seeds 0 to this, 5 by default")
    parser.add_argument("--updates", type=_positive, default=200, help="updates a run, 200 by default")
    parser.add_argument("--out", type=Path, help="file of outcomes to go on with")
    parser.add_argument(
        "--rate-factor", type=_factor, default=1.0, help="of the learning rates, 1 by default"
    )
    parser.add_argument(
        "--only", default="", help="cases whose name has this in it, and their synchronous ones"
    )
    return parser.parse_args()


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text!r}: it must be a whole number, 1 or more")
    return int(text)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < math.inf:
        raise argparse.ArgumentTypeError(f"is {text!r}: it must be a number above 0")
    return factor


if __name__ == "__main__":
    main()
