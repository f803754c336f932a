"""`python -m scheduler.bench.orders`: the best orders found, beside what CrossPipe's own were measured to take."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from scheduler.bench.orders.crosspipe import FORWARD_S, best_found, read_rows


def main() -> None:
    """Print a line for each row of the table, and how many are at most CrossUD and clearly under it."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.bench.orders", description=__doc__)
    parser.add_argument("table", type=Path, help="crosspipe_m70.csv")
    parser.add_argument("--rounds", type=int, default=2, help="annealings, each from the best so far")
    parser.add_argument("--steps", type=int, default=200_000, help="moves of each")
    asked = parser.parse_args()
    print(
        "case\tregions\tlatency\ttransfer\tline_s\tv_s\tcrossud_s\tcrosswave_s\tvs_crossud\tvs_better\tcpu_s"
    )
    at_most, under, worst = 0, 0, -1.0
    rows = list(read_rows(asked.table))
    for row in rows:
        begun_s = time.process_time()
        found = best_found(row, asked.rounds, asked.steps)
        took_s = time.process_time() - begun_s
        against_ud = found.best_s / row.crossud_s - 1
        against_better = found.best_s / min(row.crossud_s, row.crosswave_s) - 1
        at_most += found.best_s <= row.crossud_s + 0.0005
        under += against_ud <= -0.05
        worst = max(worst, against_better)
        print(
            row.case,
            row.regions,
            f"{row.latency_s / FORWARD_S:g}",
            f"{row.transfer_s / FORWARD_S:g}",
            f"{found.line_s:.4f}",
            f"{found.vee_s:.4f}",
            row.crossud_s,
            row.crosswave_s,
            f"{against_ud:+.1%}",
            f"{against_better:+.1%}",
            f"{took_s:.1f}",
            sep="\t",
            flush=True,
        )
    print(
        f"of {len(rows)} rows: at most CrossUD {at_most}, 5 % under it {under}; to the better at worst {worst:+.1%}"
    )


if __name__ == "__main__":
    main()
