"""`python -m scheduler.bench.optimal`: the optimality gap of one decision of horizon, over small random instances."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scheduler.bench.optimal.gap import gaps
from scheduler.bench.optimal.instances import drawn_snapshot
from scheduler.policies.horizon.config import HorizonConfig

_ASKED: Final[Mapping[str, HorizonConfig]] = MappingProxyType(
    {
        "horizon": HorizonConfig(),
        "without the joint choice": HorizonConfig(joint_jobs=0),
        "the main way alone": HorizonConfig(rollout_jobs=0),
    }
)


def main() -> None:
    """Print a line for each instance, and the mean, the 95th percentile and the worst of the gaps."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.bench.optimal", description=__doc__)
    parser.add_argument("--instances", type=int, default=200, help="how many, by their seeds from 0 on")
    asked = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in _ASKED}
    for seed in range(asked.instances):
        parts = {name: gap.part for name, gap in gaps(drawn_snapshot(seed), _ASKED).items()}
        for name, part in parts.items():
            found[name].append(part)
        print(seed, *(f"{part:.2%}" for part in parts.values()), sep="\t", file=sys.stderr, flush=True)
    for name, each in found.items():
        each.sort()
        p95 = each[int(0.95 * (len(each) - 1))]
        print(f"{name}: mean {sum(each) / len(each):.2%}, p95 {p95:.2%}, worst {each[-1]:.2%}")


if __name__ == "__main__":
    main()
